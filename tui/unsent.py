"""What was typed in the open conversation and is not accepted yet: in the input, on its way and
on disk.

While a message is being edited the input holds its new version, and what was there before is put
aside; on disk each of the two is a draft of its own. Knows no screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hobnob.tui.drafts import Draft, Drafts
from hobnob.tui.folds import Typed
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Outgoing, Talk
from hobnob.tui.transcript import Entry


@dataclass(frozen=True, slots=True)
class Edit:
    """The input holds a new version of a message."""

    entry: Entry
    """As it was; its branch may have been left since."""
    aside: Typed
    """What was in the input, and will be again."""


class Unsent:
    def __init__(self, talk: Talk, drafts: Drafts) -> None:
        self._talk = talk
        self._drafts = drafts
        self.outgoing: Outgoing | None = None
        self.edit: Edit | None = None
        self.strayed = False
        """A message was being edited that is not among the entries: its text was a draft like any
        other when it was loaded."""
        self._tried = Draft("")  # posted, here or by the app before, and not known to be accepted

    def leave(self) -> None:
        """Another conversation is going to be open."""
        self.outgoing = self.edit = None
        self._tried = Draft("")

    # ---- editing ------------------------------------------------------------------------------

    @property
    def edited(self) -> Entry | None:
        """The message that is being edited, as it is shown now; None where it is not."""
        return None if self.edit is None else self._entry(self.edit.entry.id)

    def begin_edit(self, entry: Entry, typed: Typed) -> None:
        """`typed` is in the input."""
        self.edit = Edit(entry, typed if self.edit is None else self.edit.aside)

    def end_edit(self) -> Typed:
        """What belongs into the input again."""
        aside = Typed() if self.edit is None else self.edit.aside
        self.edit = None
        return aside

    def put_aside(self, parts: Sequence[Typed]) -> None:
        """Something else that has to wait for the end of the edit."""
        assert self.edit is not None, "there is room in the input"
        self.edit = replace(self.edit, aside=Typed.joined([*parts, self.edit.aside]))

    def _entry(self, id: str) -> Entry | None:
        return next((one for one in self._talk.entries if id and one.id == id), None)

    # ---- sending ------------------------------------------------------------------------------

    def prepare(self, typed: Typed) -> Outgoing:
        """It goes on its way, in place of the message that is being edited, if one is."""
        text, at = typed.full, self.edited
        id = "" if at is None else at.id
        out = self._talk.prepare(typed.message, instead_of=at, key=self._key(text, id))
        self.outgoing, self._tried = out, Draft(text, out.key, typed, id)
        return out

    def accepted(self, before: str | None) -> None:
        """`before`: the id of the conversation when it was posted."""
        self.outgoing, self._tried = None, Draft("")
        if before != self._talk.id:
            self._drafts.save(before, Draft(""))

    def refused(self, waiting: Sequence[Typed], typed: Typed) -> Typed:
        """Nothing is lost: what belongs into the input, where `typed` is now."""
        out, going = self.outgoing, self._tried.as_typed
        assert out is not None, "only what is on its way can be refused"
        self._talk.withdraw(out)
        self.outgoing = None
        if not out.replaced:
            return Typed.joined([going, *waiting, typed])
        self.edit = Edit(out.replaced[0], Typed.joined([*waiting, typed]))
        return going

    def _key(self, text: str, instead_of: str) -> str:
        """The one under which the same was posted before, if it was."""
        tried = self._tried
        return tried.key if (tried.text, tried.instead_of) == (text, instead_of) else ""

    # ---- on disk ------------------------------------------------------------------------------

    def save(self, typed: Typed, waiting: Sequence[Typed]) -> None:
        """`typed` is in the input, `waiting` was entered before it."""
        out, ahead, edited = self.outgoing, list(waiting), Draft("")
        if self.edit is not None:
            edited = self._draft(typed, self.edit.entry.id)
            typed = self.edit.aside
        if out is not None and out.replaced:
            edited = self._tried
        elif out is not None:
            ahead.insert(0, self._tried.as_typed)
        self._drafts.save_edit(self._talk.id, edited)
        self._drafts.save(self._talk.id, self._draft(Typed.joined([*ahead, typed])))

    def _draft(self, typed: Typed, instead_of: str = "") -> Draft:
        text = typed.full
        return Draft(text, self._key(text, instead_of), typed, instead_of)

    def keep(self, id: str | None, typed: Sequence[Typed]) -> None:
        """What was typed for a conversation that was left before it was open goes below its
        draft; where that cannot be written, below the one of a new conversation."""
        new = Typed.joined([one for one in typed if one.text])
        for place in dict.fromkeys((id, None)) if new.text else ():
            old = self._drafts.load(place)
            whole = Typed.joined([old.as_typed, new]) if old.text else new
            if self._drafts.save(place, Draft(whole.full, typed=whole)):
                return

    async def reach(self) -> None:
        """Have the message read that was being edited here, if one was."""
        id = self._drafts.load_edit(self._talk.id).instead_of
        if not id:
            return
        try:
            await self._talk.reach(id)
        except ClientError:
            return  # its text is not lost, see `load`

    def load(self) -> str | Typed:
        """What belongs into the input; an edit that was not finished goes on."""
        draft, edited = self._drafts.load(self._talk.id), self._drafts.load_edit(self._talk.id)
        entry = self._entry(edited.instead_of)
        self.edit, self.strayed = None, False
        if not edited.text:
            self._tried = draft
            return draft.shown
        if entry is not None:
            self._tried = edited
            self.edit = Edit(entry, draft.as_typed)
            return edited.shown
        self.strayed = True
        self._tried = replace(edited, instead_of="")
        return Typed.joined([edited.as_typed, draft.as_typed]) if draft.text else edited.shown
