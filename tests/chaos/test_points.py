"""The named points of a death are where the program is."""

from __future__ import annotations

import functools
import importlib
import importlib.util

import pytest
from striking import POINTS_FOLDER

_spec = importlib.util.spec_from_file_location("points", POINTS_FOLDER / "sitecustomize.py")
assert _spec is not None and _spec.loader is not None
points = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(points)


@pytest.mark.parametrize("point", sorted(points.POINTS))
def test_there_is_a_function_at_the_point(point: str) -> None:
    module, path, *_ = points.POINTS[point]
    found = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    assert callable(found)
