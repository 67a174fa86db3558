"""The package as it is installed: every folder listed, nothing committed that may not be."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

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
