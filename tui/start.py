"""Starting the app on this terminal, and what is said when it has ended."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from hobnob.paths import Paths
from hobnob.tui import settings, themes
from hobnob.tui.app import HobnobApp
from hobnob.tui.farewell import say_how_to_come_back
from hobnob.tui.inline_app import InlineApp
from hobnob.tui.notice import Notice
from hobnob.tui.options import model_argument

if TYPE_CHECKING:
    from hobnob.launch import Target
    from hobnob.tui.client import Client


COLLECT_AT = (20_000, 20, 20)
"""New objects, and collections of each generation before the next one's."""


@contextmanager
def _errors_aside() -> Iterator[None]:
    """The app is drawn on standard error, so while it is there that is the terminal
    (`hobnob 2>log`)."""
    if os.isatty(2) or not os.isatty(1):
        yield
        return
    theirs = os.dup(2)
    os.dup2(1, 2)
    try:
        yield
    finally:
        os.dup2(theirs, 2)
        os.close(theirs)


async def run_app(app: HobnobApp) -> int:
    """Run to the end; SIGTERM and SIGHUP end it too, with the terminal restored. So do SIGQUIT and
    SIGABRT, at once: they are for an app that hears nothing any more."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, app.end, 128 + number)

    def die(number: int, frame: FrameType | None) -> None:
        app.let_go()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in (signal.SIGQUIT, signal.SIGABRT):
        signal.signal(number, die)
    await app.run_async(**app.RUN)
    return app.return_code or 0


def run(
    target: Target,
    *,
    conversation: str | None = None,
    system: str | None = None,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    inline: bool = False,
    temporary: bool = False,
) -> int:
    """Start the app on this terminal; the exit code. Prints how to come back at the end."""
    kind = InlineApp if inline else HobnobApp
    args = ["--model", model_argument(model)] if model else []

    def connect(hear: Callable[[Notice], None]) -> Client:
        from hobnob.tui.client import Client  # httpx; the first paint does not wait for it

        return Client(target, server_args=args, on_notice=hear)

    paths = Paths.home()
    chosen = settings.read(paths.config_dir)
    own, wrong = themes.read(paths.config_dir)
    choice = themes.choose(os.environ, chosen.theme)
    app = kind(
        connect,
        paths.state_dir,
        conversation=conversation,
        system=system,
        options=options,
        theme=choice.theme,
        keymap=chosen.keys,
        problem="  ".join(filter(None, [chosen.problem, wrong])),
        vi=chosen.vi,
        own_themes=own,
        typed=choice.typed,
        temporary=temporary,
        url=target.url,
    )
    # What was imported stays to the end: without going through it a collection is no pause.
    gc.freeze()
    gc.set_threshold(*COLLECT_AT)
    with _errors_aside():
        code = asyncio.run(run_app(app))
    if app.left_in is not None:
        say_how_to_come_back(target, app.left_in, *kind.AGAIN)
    return code
