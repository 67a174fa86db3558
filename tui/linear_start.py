"""Starting the plain chat on this terminal, and what is said when it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hobnob.tui.farewell import say_how_to_come_back
from hobnob.tui.linear import LinearChat
from hobnob.tui.notice import Notice
from hobnob.tui.options import model_argument

if TYPE_CHECKING:
    from hobnob.launch import Target
    from hobnob.tui.client import Client


def run(target: Target, *, model: str | None = None, **how: Any) -> int:
    """Start the plain chat on this terminal; the exit code. Prints how to come back at the end.
    `how`: what LinearChat takes."""
    args = ["--model", model_argument(model)] if model else []

    def connect(hear: Callable[[Notice], None]) -> Client:
        from hobnob.tui.client import Client  # httpx: the greeting does not wait for it

        return Client(target, server_args=args, on_notice=hear)

    chat = LinearChat(connect, target.paths.state_dir, **how)
    code = chat.run()
    if chat.talk.id is not None and not chat.talk.temporary:
        say_how_to_come_back(target, chat.talk.id, "--plain")
    return code
