"""What the text before the cursor may become: / commands and @ files, offered above the input.

Never has the focus: the input asks it what a key means while it is open. A file that is picked is
read at once, so that what is counted and what is sent is what was picked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from textual import work
from textual.content import Content
from textual.widgets import Static

from hobnob.tui.commands import COMMANDS, matching
from hobnob.tui.files import FileRefused, Files, Mention, mention, written
from hobnob.tui.folds import Fold
from hobnob.tui.roles import COMMAND, Roles, begun

if TYPE_CHECKING:
    from hobnob.tui.composer import Composer

MOST_SHOWN = 8
FEWEST_SHOWN = 2


class Offer(NamedTuple):
    text: str
    about: str = ""


class Completions(Static):
    def __init__(self, *, commands: bool = True) -> None:
        """`commands`: whether there are any here."""
        super().__init__(id="completions", markup=False)
        self._commands = commands
        self.display = False
        self._files = Files(_folder("."), _folder("~"))
        self._offers: list[Offer] = []
        self._at = 0
        self._looked_at: tuple[str, tuple[int, int]] | None = None
        self._mention: Mention | None = None
        self.reading = ""
        """The file that is being read for the input, if any."""

    @property
    def is_open(self) -> bool:
        return bool(self._offers)

    @property
    def shown(self) -> list[str]:
        return [offer.text for offer in self._offers]

    def pass_over(self, composer: Composer) -> None:
        """What is in the input now was not typed, and nothing is offered for it."""
        self._looked_at = (composer.text, composer.cursor_location)
        self._mention = None
        self.close()

    def look(self, composer: Composer) -> None:
        """Offers what fits before the cursor. Costs nothing when nothing has changed."""
        here = (composer.text, composer.cursor_location)
        if here == self._looked_at:
            return
        self._looked_at = here
        self._mention = None
        if self._commands and composer.typed.command:  # an @ is the shell's
            self.close()
        elif self._commands and (names := matching(composer.text)):
            self._offer([Offer(name, COMMANDS[name].about) for name in names])
        elif self._commands and (part := begun(composer.text)) is not None:
            self._offer([Offer(f"{COMMAND} {name}") for name in Roles.home().fitting(part)])
        elif (found := mention(composer.before_cursor)) is not None:
            self._mention = found
            self._narrow(found.partial)
            self._find(found)
        else:
            self.close()

    def close(self) -> bool:
        """Until something else is typed. False when it was not open."""
        was_open = self.is_open
        self._offer([])
        return was_open

    def move(self, step: int) -> None:
        self._at = (self._at + step) % len(self._offers)
        self._draw()

    def is_typed(self, text: str) -> bool:
        """Whether the text is one of the commands already."""
        return self._mention is None and (text in COMMANDS or text in self.shown)

    def pick(self, composer: Composer) -> None:
        """Puts the offer in the place of what was typed of it."""
        chosen, found = self._offers[self._at].text, self._mention
        self.close()
        if found is None:
            composer.put(chosen)
        elif chosen.endswith("/"):
            composer.replace_before_cursor(found.start, written(chosen))
        else:
            row = composer.cursor_location[0]
            typed = composer.before_cursor[found.start :]
            self._read(composer, (row, found.start), typed, chosen)

    @work(exclusive=True, group="find")
    async def _find(self, found: Mention) -> None:
        paths = await self._files.find(found.partial)
        if found == self._mention:
            self._offer([Offer(path) for path in paths])

    @work(exclusive=True, group="attach")
    async def _read(
        self, composer: Composer, place: tuple[int, int], typed: str, path: str
    ) -> None:
        self.reading = path
        try:
            text = await self._files.read(path)
        except FileRefused as error:
            self.app.notify(str(error), severity="warning", markup=False)
            return
        finally:
            self.reading = ""
        composer.attach(*place, typed, Fold(text, path))

    def _narrow(self, partial: str) -> None:
        """Until the folder has answered: of the earlier offers, those that still fit."""
        name = partial.rpartition("/")[2].lower()
        fitting = [o for o in self._offers if name in o.text.lower() and not o.about]
        self._offer(fitting if partial else [])

    def _offer(self, offers: list[Offer]) -> None:
        if offers == self._offers:
            return
        self._offers = offers
        self._at = 0
        self.display = bool(offers)
        self._draw()

    def _draw(self) -> None:
        most = max(FEWEST_SHOWN, min(MOST_SHOWN, self.app.size.height // 2 - 3))  # and the input
        first = max(0, min(self._at - most // 2, len(self._offers) - most))
        shown = self._offers[first : first + most]
        width = max((len(offer.text) for offer in shown if offer.about), default=0) + 2
        rows = []
        for number, offer in enumerate(shown, first):
            style = "$accent bold" if number == self._at else ""
            mark = "› " if number == self._at else "  "
            rows.append(Content.assemble((mark + offer.text.ljust(width), style), offer.about))
        if more := _more(first, len(self._offers) - first - len(shown)):
            rows.append(Content.styled(f"  {more}", "$faint"))
        self.update(Content("\n").join(rows))


def _more(above: int, below: int) -> str:
    """What is not in sight of the offers."""
    counts = (("↑", above), ("↓", below))
    return " · ".join(f"{sign} {count} more" for sign, count in counts if count)


def _folder(name: str) -> Path:
    """Absolute; the root where there is no such folder (any more)."""
    try:
        return Path(os.path.abspath(os.path.expanduser(name)))
    except OSError:
        return Path("/")
