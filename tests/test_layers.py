"""Dependencies point one way. Each rule is a promise of docs/architecture.md."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STDLIB = sys.stdlib_module_names
PURE_ENGINE = {
    "cells",
    "detokenize",
    "drafter",
    "recall",
    "scheduler",
    "sources",
    "speculation",
}
EDGE = {"app", "listener", "main", "security", "streams"}


def modules() -> dict[str, Path]:
    """Dotted name of every module of the package, and its file."""
    files = [*ROOT.glob("*.py")]
    for top in ("tui", "server", "store"):
        files += sorted((ROOT / top).rglob("*.py"))
    found = {}
    for path in files:
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(("hobnob", *parts))] = path
    return found


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Modules that a file imports; with `top_level` only those imported when it is imported."""
    tree = ast.parse(path.read_text())
    nodes: Iterator[ast.AST] = iter(_import_time(tree)) if top_level else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return found


def _import_time(tree: ast.Module) -> list[ast.AST]:
    """Nodes outside functions and outside `if TYPE_CHECKING`."""
    pending: list[ast.AST] = list(tree.body)
    found = []
    while pending:
        node = pending.pop()
        found.append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
    return found


MODULES = modules()


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name in MODULES}


def foreign(names: set[str]) -> set[str]:
    tops = {name.split(".")[0] for name in names}
    return {top for top in tops if top not in STDLIB and top != "hobnob"}


def under(prefix: str) -> list[str]:
    return sorted(name for name in MODULES if name == prefix or name.startswith(prefix + "."))


def test_only_one_module_imports_llama_cpp() -> None:
    users = [name for name, path in MODULES.items() if "llama_cpp" in foreign(imports(path))]
    assert users == ["hobnob.server.engine.llama"]


@pytest.mark.parametrize("name", ["server.wire", "paths", "launch", "exits", "store.values"])
def test_the_light_modules_need_only_the_standard_library(name: str) -> None:
    assert foreign(imports(MODULES[f"hobnob.{name}"], top_level=True)) == set()


def test_the_store_knows_nothing_of_the_rest() -> None:
    for name in under("hobnob.store"):
        strangers = {n for n in ours(imports(MODULES[name])) if not n.startswith("hobnob.store")}
        assert strangers - {"hobnob"} == set(), name


def test_the_client_knows_of_the_server_only_what_travels() -> None:
    shared = {f"hobnob.{name}" for name in ("paths", "launch", "exits", "toml_file", "server")}
    allowed = {"hobnob"} | shared
    for name in under("hobnob.tui"):
        used = {n for n in ours(imports(MODULES[name])) if not n.startswith("hobnob.tui")}
        assert used - allowed - {"hobnob.server.wire"} == set(), name


def test_textual_is_used_by_the_app_and_never_by_what_the_cli_shares() -> None:
    shared = ("client", "transcript", "blocks", "clean", "linear", "linear_commands", "telling")
    for name in shared:
        assert "textual" not in foreign(imports(MODULES[f"hobnob.tui.{name}"])), name
    outside = [n for n in MODULES if not n.startswith("hobnob.tui.")]
    assert [n for n in outside if "textual" in foreign(imports(MODULES[n]))] == []


def test_the_pure_engine_modules_touch_no_clock_thread_or_file() -> None:
    impure = {"time", "threading", "socket", "os", "pathlib", "asyncio", "queue", "random"}
    for name in PURE_ENGINE:
        used = imports(MODULES[f"hobnob.server.engine.{name}"], top_level=True)
        assert {n.split(".")[0] for n in used} & impure == set(), name
        assert foreign(used) <= {"msgspec", "numpy"}, name


def test_the_web_framework_stays_at_the_edge() -> None:
    web = {"fastapi", "starlette", "uvicorn"}
    for name in under("hobnob.server"):
        if foreign(imports(MODULES[name])) & web:
            assert name.startswith("hobnob.server.routes.") or name.split(".")[-1] in EDGE, name


def test_pydantic_stays_at_the_edge_and_in_the_config() -> None:
    for name in MODULES:
        if foreign(imports(MODULES[name])) & {"pydantic", "pydantic_settings"}:
            last = name.split(".")[-1]
            assert name.startswith("hobnob.server.routes") or last in EDGE | {"config"}, name


def test_the_server_process_never_loads_the_engine_or_numpy() -> None:
    """Followed through every import from the server's entry: it has to stay small."""
    seen: set[str] = set()
    pending = ["hobnob.server.main"]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        names = imports(MODULES[name])
        assert foreign(names) & {"llama_cpp", "numpy", "textual", "jinja2"} == set(), name
        pending += ours(names)
    assert "hobnob.server.engine.worker" not in seen


def test_no_start_waits_for_the_library_of_forms() -> None:
    """Few replies are held to one, and every start and restart would pay for its import."""
    seen: set[str] = set()
    pending = ["hobnob.server.main", "hobnob.server.engine.worker", "hobnob.server.engine.loading"]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        names = imports(MODULES[name], top_level=True)
        assert "llguidance" not in foreign(names), name
        pending += ours(names)
    assert "hobnob.server.engine.form_grammar" in seen


def test_the_engine_process_knows_neither_store_nor_http() -> None:
    seen: set[str] = set()
    pending = ["hobnob.server.engine.worker"]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        assert not name.startswith(("hobnob.store", "hobnob.tui", "hobnob.server.routes")), name
        assert foreign(imports(MODULES[name])) & {"fastapi", "httpx", "sqlite_utils"} == set(), name
        pending += ours(imports(MODULES[name]))


def test_no_import_goes_round_in_a_circle() -> None:
    graph = {n: ours(imports(p, top_level=True)) - {n} for n, p in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        for other in graph[name]:
            # A package's __init__ is imported with any of its modules; ours are empty.
            if not MODULES[other].name == "__init__.py":
                visit(other, (*path, name))
        done.add(name)

    for name in graph:
        visit(name, ())
