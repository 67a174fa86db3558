"""Titles by the real model: of a new conversation by itself, and asked for."""

from __future__ import annotations

import httpx
from support_e2e import GREEDY, Home, wait_for

from hobnob import launch
from hobnob.server.wire import API

ASKED = "What is the capital of France? Answer in one sentence."
FEW = ("-o", "max_tokens", "40")


def test_the_model_finds_a_title_and_leaves_no_trace_of_it(home: Home) -> None:
    with_titles = {"HOBNOB_TITLES": "model"}
    assert home.run("ask", ASKED, *GREEDY, *FEW, env=with_titles).returncode == 0
    (id,) = home.conversations()

    def conversation() -> dict[str, object]:
        found: dict[str, object] = home.get(f"/conversations/{id}")
        return found

    words = "What is the capital of France? Answer in one sentence."
    wait_for(lambda: conversation()["title"] != words)
    title = str(conversation()["title"])
    assert title and "\n" not in title and len(title.split()) <= 12
    assert len(home.get(f"/conversations/{id}/tree")["messages"]) == 2
    server = launch.find(home.paths)
    assert server is not None
    asking = f"{server.url}{API}/conversations/{id}/title"
    headers = {"x-api-key": home.key()}
    answer = httpx.post(asking, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["conversation"]["title"] == title  # greedy, of the same conversation
