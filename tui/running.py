"""The chat's `!`: lines of the input are run in the shell one after the other, and what they put
out comes into the input. Meanwhile everything else goes on."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on, work

from hobnob.tui.chat_frame import ChatFrame
from hobnob.tui.clean import one_line
from hobnob.tui.composer import Composer
from hobnob.tui.drafts import Drafts
from hobnob.tui.folds import Fold
from hobnob.tui.prompts import Prompts
from hobnob.tui.shell_command import ShellCommand, ShellRefused
from hobnob.tui.shell_notation import literal
from hobnob.tui.talk import Talk
from hobnob.tui.wrap import shorten

SHOWN_CHARS = 40


class Running(ChatFrame):
    def __init__(self, talk: Talk, drafts: Drafts, prompts: Prompts, first: str | None) -> None:
        super().__init__(talk, drafts, prompts, first)
        self._shell: ShellCommand | None = None  # that runs
        self._lines: list[str] = []  # that will be run after it
        self._outputs: list[Fold] = []  # that are not in the input yet

    @on(Composer.Run)
    def _line_entered(self, event: Composer.Run) -> None:
        event.stop()
        edit = self._unsent.edit
        if edit is not None and not self.composer.text:  # it goes on after the command
            self.composer.put(literal(edit.entry.text))
        self._lines.append(event.command)
        self._run_next()

    def _run_next(self) -> None:
        if self._shell is None and self._lines:
            self._shell = ShellCommand(self._lines.pop(0))
            self._run(self._shell)
        self._runs = "" if self._shell is None else shown(self._shell.command)
        self._show_hint()

    @work(group="shell")
    async def _run(self, shell: ShellCommand) -> None:
        try:
            ran = await shell.run()
        except ShellRefused as error:
            self.app.notify(str(error), severity="warning", markup=False)
        else:
            self._outputs.append(ran.fold)
            self._place_outputs()
        self._shell = None
        self._run_next()

    @on(Composer.Changed)
    def _place_outputs(self) -> None:
        """Not between a / and the rest of a command, nor in a prompt that is only looked at."""
        if not (self.composer.text.startswith("/") or self._prompts.browsing):
            self._place(self._outputs)

    def _place(self, outputs: Sequence[Fold]) -> None:
        self._outputs = []
        for output in outputs:
            self.composer.put_before(output)

    def stop_commands(self) -> bool:
        """The one that runs, and those behind it are not run. False: none runs."""
        if self._shell is None:
            return False
        self._shell.stop()
        if self._lines:
            words = ", ".join(map(shown, self._lines))
            self.app.notify(f"Not run any more: {words}.", markup=False)
            self._lines.clear()
        return True

    def leave_commands(self) -> None:
        """Another conversation is going to be open. Nothing of a temporary one comes into it."""
        if self.talk.temporary:
            self.workers.cancel_group(self, "shell")
            self._shell, self._runs = None, ""
            self._lines.clear()
            self._outputs.clear()
        elif self.is_mounted:
            self._place(self._outputs)


def shown(command: str) -> str:
    return f"`{shorten(one_line(command), SHOWN_CHARS)}`"
