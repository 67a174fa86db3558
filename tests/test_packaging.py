"""The package as it is installed: every folder listed, nothing committed that may not be."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

import hobnob

ROOT = Path(__file__).resolve().parents[1]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked_files() -> list[Path]:
    """Files in git, or those of a source distribution when there is no git here."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_every_package_is_listed() -> None:
    listed = set(CONFIG["tool"]["setuptools"]["packages"])
    found = {"hobnob"} | {
        ".".join(("hobnob", *p.parent.relative_to(ROOT).parts))
        for top in ("tui", "server", "store")
        for p in (ROOT / top).rglob("__init__.py")
    }
    assert found == listed


def test_every_python_folder_is_a_package() -> None:
    folders = {p.parent for top in ("tui", "server", "store") for p in (ROOT / top).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_version_is_the_one_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {hobnob.__version__}" in changelog


def test_constraints_hold_exact_versions_and_no_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line) for line in lines)


def test_every_dependency_is_pinned_in_the_constraints() -> None:
    project = CONFIG["project"]
    wanted = [*project["dependencies"], *CONFIG["dependency-groups"]["dev"]]
    wanted += project["optional-dependencies"]["starter"]
    names = {normal(re.split(r"[><=\[ ]", line)[0]) for line in wanted}
    pinned = {
        normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert names - pinned == set()


def test_no_tracked_file_is_a_model_or_larger_than_a_megabyte() -> None:
    too_much = [
        path.name
        for path in tracked_files()
        if path.suffix in {".gguf", ".safetensors"} or path.stat().st_size > 1_000_000
    ]
    assert too_much == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_pinned_versions_are_among_those_that_are_asked_for() -> None:
    """Else a new machine installs nothing, and one that is set up does not notice."""
    asked = [
        *CONFIG["project"]["dependencies"],
        *chain(*CONFIG["project"]["optional-dependencies"].values()),
        *chain(*CONFIG["dependency-groups"].values()),
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("#")[0].strip() for line in lines]
    pinned = dict(pin.split("==") for pin in pins if "==" in pin)
    wanted = [Requirement(one) for one in asked if isinstance(one, str)]
    wrong = [
        f"{one}: {pinned[one.name]}"
        for one in wanted
        if one.name in pinned and not one.specifier.contains(pinned[one.name].split(" ")[0])
    ]
    assert wrong == []
    assert sum(one.name in pinned for one in wanted) > 10
