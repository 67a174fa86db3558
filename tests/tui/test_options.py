from __future__ import annotations

import pytest

from hobnob.tui.notice import ClientError
from hobnob.tui.options import require_model

RUNNING = {"id": "Nice-Q4.gguf", "path": "/models/Nice-Q4.gguf"}


@pytest.mark.parametrize("name", ["Nice-Q4.gguf", "Nice-Q4", "/models/Nice-Q4.gguf"])
def test_the_running_model_is_known_by_its_id_and_its_path(name: str) -> None:
    require_model(RUNNING, name)


@pytest.mark.parametrize("name", ["other", "nice", "/models/other.gguf", ""])
def test_another_model_than_the_running_one_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(ClientError, match="hobnob stop") as raised:
        require_model(RUNNING, name)
    assert raised.value.code == "model_not_found"
