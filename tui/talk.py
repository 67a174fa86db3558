"""One open conversation: its entries, and what is asked of the server about them.

Knows no screen. The chat calls it, shows `entries`, and hears of changes while a reply streams.
A message that was not accepted leaves no trace here, so that it can be sent again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hobnob.server import wire
from hobnob.tui.joint import Joint, joint
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Branch, Conversation, Plan, Turn, build
from hobnob.tui.reply import OnChange, follow
from hobnob.tui.temporary import GONE, Keep, Temporary
from hobnob.tui.transcript import ASSISTANT, USER, Entry, Phase, draft_entry, entry
from hobnob.tui.tuning import Tuning

if TYPE_CHECKING:
    from hobnob.tui.client import Client

ROOT = "root"
"""The parent of a first message that was edited: it begins a branch of its own."""
FIRST_MESSAGES = 20
"""What is read of a conversation when it is opened."""
PAGE = 100
"""What is read of it when more is wanted."""
LARGEST_PAGE = 500
CHECK_SECONDS = 3.0
"""How long a server may take to refuse what a new conversation shall be asked with: it does so
before it waits for a model. What it has not refused by then is looked at with the message."""
WRONG = frozenset({"invalid_request", "prompt_too_long"})
"""Refusals of these settings, not of everything."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message on its way; the same key makes it one turn however often it is sent."""

    text: str
    parent: str | None
    entry: Entry
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    cancelled: bool = False
    replaced: list[Entry] = field(default_factory=list)
    """What it takes the place of: an edited message and all that followed it."""


class Talk:
    def __init__(
        self,
        line: Line,
        *,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
        keep: Keep | None = None,
    ) -> None:
        """`keep`: how temporary conversations are held, if not by a task."""
        self._line = line
        self._usual = Tuning(system)
        self._new = self._usual
        """Of the conversation that is still to be made."""
        self._options = dict(options or {})
        self._passing = Temporary(line, keep)
        self.temporary = False
        """Whether nothing of what is open is kept."""
        self.conversation: Conversation | None = None
        self.entries: list[Entry] = []
        """The end of the branch that is shown; what is before it was not read yet."""
        self.earlier = 0
        """How many messages that are."""
        self._leaves: dict[str, str] = {}
        """Where each branch that was looked at ends, by the message that it goes through."""
        self._lost: Entry | None = None
        """A reply that could not be followed to its end: what there is of it is not all."""
        self._passed_over: str | None = None
        """The head of a version that somebody else looks at."""

    @property
    def id(self) -> str | None:
        return self.conversation.id if self.conversation else None

    @property
    def server(self) -> str | None:
        """The address of the server where all is; None for the one of this machine."""
        return self._line.url

    @property
    def system(self) -> str | None:
        """The system prompt of a conversation that is still to be made."""
        return self._new.system

    @property
    def settings(self) -> Mapping[str, Any]:
        """The sampling options of a conversation that is still to be made."""
        return self._new.settings

    @property
    def options(self) -> Mapping[str, Any]:
        """What every message here is sent with; it goes before the conversation's settings."""
        return self._options

    @property
    def tuning(self) -> Tuning:
        """What the next message is asked with."""
        known = self.conversation
        own = self._new if known is None else Tuning(known.system, known.settings)
        return Tuning(own.system, {**own.settings, **self._options})

    @property
    def live(self) -> Entry | None:
        """The reply that is being written."""
        last = self.entries[-1] if self.entries else None
        return last if last is not None and last.live and last.role == ASSISTANT else None

    @property
    def left_out(self) -> set[str]:
        """Ids of the messages that had no room in the last prompt."""
        for one in reversed(self.entries):
            if one.context is not None:
                return set(one.context.left_out)
        return set()

    # ---- reading ------------------------------------------------------------------------------

    async def open(self, id: str, at: str | None = None) -> None:
        """The end of a conversation; with `at` all from that message on, in its branch."""
        client = await self._line.get()
        self._take(await client.branch(id, at, newest=at is not None, limit=FIRST_MESSAGES))
        if at is not None:
            await self.reach(at)

    async def read_earlier(self, limit: int = PAGE) -> int:
        """Read messages before the entries; how many have come."""
        first = self.entries[0] if self.entries else None
        if self.conversation is None or first is None or not self.earlier:
            return 0
        client, id = await self._line.get(), self.conversation.id
        if first.id:
            branch = await client.branch(id, before=first.id, limit=limit)
        else:  # it is on its way to the server
            branch = await client.branch(id, first.parent, limit=limit)
        if not self.entries or self.entries[0] is not first:
            return 0  # somebody else was quicker, or another branch is shown by now
        self.entries[:0] = [entry(m, branch.siblings.get(m.id, ())) for m in branch.messages]
        self.earlier = branch.earlier if branch.messages else 0
        self._remember()
        return len(branch.messages)

    async def read_all(self) -> None:
        """Read on to the first message."""
        while self.earlier and await self.read_earlier(LARGEST_PAGE):
            pass

    async def reach(self, id: str) -> None:
        """Read on until a message is there."""
        while self.earlier and all(one.id != id for one in self.entries):
            if not await self.read_earlier(LARGEST_PAGE):
                return

    @property
    def has_left(self) -> bool:
        """Whether there are temporary conversations that are to be deleted."""
        return bool(self._passing.left)

    def on_gone(self, do: Callable[[], None]) -> None:
        """What to do when the temporary conversation that is open is deleted by the server."""
        self._passing.on_gone = do

    def why(self, error: ClientError) -> str:
        """What to say of a call about the open conversation that failed."""
        return GONE if self.temporary and error.code == "not_found" else error.message

    async def forget(self) -> None:
        """Delete the temporary conversations that were left. Raises ClientError: then the server
        does it by itself in a while."""
        await self._passing.forget()

    async def end(self) -> None:
        """Nothing will be read or written any more. Raises ClientError as `forget` does."""
        self._passing.leave()
        await self.forget()

    def clear(self, *, temporary: bool = False) -> None:
        """Nothing is open; what is written next is `temporary` or not."""
        self._passing.leave()
        self.temporary = temporary
        self.conversation, self.entries, self.earlier = None, [], 0
        self._new = self._usual

    async def warm(self) -> None:
        """Something will be written here: the server may prepare. Never fails, waits for nothing
        that a person waits for."""
        if self.id is None or not self.entries or self.live is not None:
            return
        try:
            await (await self._line.get()).warm(self.id)
        except ClientError:
            return  # it was only a wish

    def _take(self, branch: Branch) -> None:
        if branch.conversation.id != self.id:
            self._passing.leave(but=branch.conversation.id)
            self.mind(branch.conversation)
        self.conversation, self._new = branch.conversation, self._usual
        self.entries = [entry(m, branch.siblings.get(m.id, ())) for m in branch.messages]
        self.earlier = branch.earlier
        self._lost = self._passed_over = None
        self._remember()

    def mind(self, conversation: Conversation) -> None:
        """It is open here, or about to be: a temporary one is held from now on."""
        self.temporary = conversation.temporary
        if conversation.temporary:
            self._passing.hold(conversation.id)

    def _remember(self) -> None:
        if self.entries and self.entries[-1].id:
            for one in self.entries:
                self._leaves[one.id] = self.entries[-1].id

    async def switch(self, at: Entry, step: int) -> Entry | None:
        """Show the version before or after, which is returned. None: there is none. Raises
        ClientError, and nothing changed."""
        if self.conversation is None or at.id not in at.siblings:
            return None
        number = at.siblings.index(at.id) + step
        if not 0 <= number < len(at.siblings):
            return None
        self._remember()
        id, target = self.conversation.id, at.siblings[number]
        client = await self._line.get()
        branch = await self._through(client, id, target)
        # Only when the server has it is it open here as well: it may refuse, or be away.
        changed = await client.update_conversation(id, head=branch.messages[-1].id)
        self._take(replace(branch, conversation=changed))
        return next((one for one in self.entries if one.id == target), self.entries[-1])

    async def _through(self, client: Client, id: str, target: str) -> Branch:
        """The branch of a conversation that goes through a message, from that one on."""
        leaf = self._leaves.get(target)
        found = await client.branch(id, leaf or target, newest=leaf is None, limit=FIRST_MESSAGES)
        while found.earlier and all(one.id != target for one in found.messages):
            before = await client.branch(id, before=found.messages[0].id, limit=LARGEST_PAGE)
            if not before.messages:
                break
            found = found.after(before)
        return found

    # ---- what others write --------------------------------------------------------------------

    def adopt(self, conversation: Conversation) -> bool:
        """Take in what became of the open conversation. False: it is another, or nothing new."""
        known = self.conversation
        if known is None or known.id != conversation.id or known.change >= conversation.change:
            return False
        self.conversation = conversation
        return True

    @property
    def behind(self) -> bool:
        """Whether there may be messages of the open conversation that are not among the entries."""
        head = self.conversation.head if self.conversation else None
        last = self.entries[-1].id if self.entries else None
        return self._lost is not None or head not in (None, last, self._passed_over)

    async def news(self) -> Joint | None:
        """Where the branch that was shown last, anywhere, joins the entries; None where it does
        not, as far as can be seen. A reply that was lost is to be read again."""
        assert self.conversation is not None, "only what is open can be behind"
        client, id = await self._line.get(), self.conversation.id
        branch = await client.branch(id, limit=FIRST_MESSAGES)
        lost = self._lost
        number = self.entries.index(lost) if lost is not None and lost in self.entries else None
        there = joint(self.entries[:number], branch)
        if there is None and branch.earlier and branch.messages:
            before = await client.branch(id, before=branch.messages[0].id, limit=LARGEST_PAGE)
            there = joint(self.entries[:number], branch.after(before))
        return there

    def is_lost(self, number: int) -> bool:
        return self.entries[number] is self._lost

    def take_in(self, there: Joint) -> list[Entry]:
        """Its messages are entries from now on, in place of what stood there."""
        made = [entry(one, there.siblings.get(one.id, ())) for one in there.added]
        self.entries[there.kept :] = made
        self._lost = self._passed_over = None
        self._remember()
        return made

    def pass_over(self) -> None:
        """What is open elsewhere is not shown here."""
        self._passed_over = self.conversation.head if self.conversation else None

    # ---- system prompt and sampling options ---------------------------------------------------

    async def tune(self, wanted: Tuning) -> None:
        """This conversation is asked so from now on. Raises ClientError, and nothing changed."""
        before, open = self.tuning, self.conversation
        system = wanted.system if (wanted.system or "").strip() else None
        settings = dict(wanted.settings)
        client = await self._line.get()
        if open is None:
            await self._check(client, Tuning(system, settings))
            self._new = Tuning(system, settings)
        else:
            changes: dict[str, Any] = {}
            if system != open.system:
                changes["system"] = system
            if settings != before.settings:
                changes["settings"] = settings
            if changes:
                self.adopt(await client.update_conversation(open.id, **changes))
        if settings != before.settings:
            self._options = {}  # they were shown among the settings, and are settings now

    async def _check(self, client: Client, wanted: Tuning) -> None:
        """Raises ClientError where a new conversation cannot be asked so."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await client.plan(None, ".", system=wanted.system, settings=wanted.settings)
        except TimeoutError:
            return
        except ClientError as error:
            if error.code in WRONG:
                raise

    # ---- writing ------------------------------------------------------------------------------

    def prepare(self, text: str, *, instead_of: Entry | None = None, key: str = "") -> Outgoing:
        """Put a message after the entries, or in place of one and all that follow it."""
        if instead_of is not None:
            at = self.entries.index(instead_of)
            parent: str | None = instead_of.parent or ROOT
            replaced = self.entries[at:]
            del self.entries[at:]
        else:
            parent = self.entries[-1].id if self.entries else None
            replaced = []
        made = Outgoing(text, parent, draft_entry(text), replaced=replaced)
        made.entry.parent = None if parent == ROOT else parent
        if instead_of is not None:
            made.entry.siblings = instead_of.siblings or (instead_of.id,)
        if key:
            made.key = key
        self.entries.append(made.entry)
        return made

    async def send(self, out: Outgoing) -> Entry:
        """Post it. Returns the reply to follow; raises ClientError, and nothing has happened."""
        client = await self._line.get()
        turn = await client.send(
            self.id,
            out.text,
            parent=out.parent,
            options=self._options or None,
            system=self._new.system if self.id is None else None,
            settings=(self._new.settings or None) if self.id is None else None,
            temporary=self.temporary and self.id is None,
            key=out.key,
        )
        sent = out.entry
        sent.id, sent.parent, sent.phase = turn.message.id, turn.message.parent, Phase.ENDED
        if sent.siblings:
            sent.siblings = (*sent.siblings, sent.id)
        return self._accepted(turn)

    async def sum_up(self, text: str, about: str, options: Mapping[str, Any], key: str) -> Entry:
        """Ask for a summary of the branch that ends with a reply. Returns what will be it, which
        is not shown here."""
        client = await self._line.get()
        given = {**self._options, **options}
        turn = await client.send(
            self.id, text, parent=ROOT, about=about, aside=True, options=given, key=key
        )
        return entry(replace(turn.reply, status=wire.Status.QUEUED, run=turn.run.id))

    async def go_on_below(self, onto: str, first: str, leaf: str) -> None:
        """Show the messages from `first` to `leaf` again, below that reply."""
        assert self.id is not None, "a stored conversation"
        await (await self._line.get()).graft(self.id, onto=onto, first=first, leaf=leaf)
        await self.open(self.id)

    async def follow_aside(self, reply: Entry, changed: OnChange) -> None:
        """Read a reply that is not shown here to its end."""
        await follow(self._line, reply, changed)

    async def plan(self, text: str, *, instead_of: Entry | None = None) -> Plan:
        """What the text would put into the prompt, at the end or in place of a message."""
        client = await self._line.get()
        if instead_of is not None:
            parent: str | None = instead_of.parent or ROOT
        else:
            parent = self.entries[-1].id if self.entries else None
        new = self.id is None
        raw = await client.plan(
            self.id,
            text,
            parent=None if new else parent,
            options=self._options or None,
            system=self._new.system if new else None,
            settings=(self._new.settings or None) if new else None,
        )
        return build(Plan, raw)

    async def count(self, text: str) -> int:
        """Tokens of the text alone."""
        return await (await self._line.get()).count(text)

    def withdraw(self, out: Outgoing) -> None:
        """It was not accepted: what it was to replace is back in its place."""
        at = self.entries.index(out.entry)
        self.entries[at : at + 1] = out.replaced

    async def regenerate(self, reply: Entry) -> Entry:
        """A new reply beside this one."""
        assert self.conversation is not None and reply.parent is not None, "a stored reply"
        client = await self._line.get()
        turn = await client.regenerate(
            self.conversation.id, reply.parent, options=self._options or None
        )
        return self._beside(reply, turn)

    async def go_on(self, reply: Entry) -> Entry:
        """A version of a reply that was cut, which begins with its text and goes on."""
        assert self.conversation is not None, "a stored reply"
        client = await self._line.get()
        return self._beside(reply, await client.go_on(self.conversation.id, reply.id))

    def reply_at(self, entry: Entry) -> Entry | None:
        """The stored reply that is meant: to a message of the user, what follows it."""
        at = self.entries.index(entry) + (entry.role == USER)
        found = self.entries[at] if at < len(self.entries) else None
        return found if found is not None and found.parent is not None else None

    def _beside(self, reply: Entry, turn: Turn) -> Entry:
        del self.entries[self.entries.index(reply) :]
        made = self._accepted(turn)
        made.siblings = (*(reply.siblings or (reply.id,)), made.id)
        return made

    def _accepted(self, turn: Turn) -> Entry:
        self.conversation, self._new = turn.conversation, self._usual
        self.mind(turn.conversation)
        made = entry(replace(turn.reply, status=wire.Status.QUEUED, run=turn.run.id))
        self.entries.append(made)
        return made

    async def follow(self, reply: Entry, changed: OnChange) -> None:
        """Read the reply's run to its end. Leaving early does not stop the run."""
        if not await follow(self._line, reply, changed):
            self._lost = reply

    async def stop(self, reply: Entry) -> None:
        """Ask the server to stop the run; its stream then ends by itself."""
        if reply.run is not None:
            client = await self._line.get()
            await client.cancel(reply.run)
