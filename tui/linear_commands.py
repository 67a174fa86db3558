"""The / commands of the plain chat: the app's, as questions and lists, and what has no key here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from hobnob.tui import clipboard, code_blocks, commands, compaction, roles, words
from hobnob.tui.clean import clean, one_line
from hobnob.tui.compare import read_settings
from hobnob.tui.doubt import Doubt
from hobnob.tui.folds import Typed
from hobnob.tui.library import pinned_ones
from hobnob.tui.records import Conversation, Hit
from hobnob.tui.roles import BadRole, NoRole, Roles
from hobnob.tui.shell_command import ShellCommand, ShellRefused
from hobnob.tui.telling import Telling
from hobnob.tui.transcript import ASSISTANT, USER, Entry
from hobnob.tui.tuning import AS_USUAL, Tuning

if TYPE_CHECKING:
    from hobnob.tui.linear import LinearChat

MOST_LISTED = 20

OWN = {
    "/show": "tell this conversation from its start",
    "/before": "the version before this one, of the last message that has several",
    "/after": "the version after this one, of the last message that has several",
    "/thoughts": "tell what the model thought before its last reply",
    "/facts": "tokens and times of the last reply",
    "/editor": "write the message in $EDITOR",
    "/reconnect": "connect again and read this conversation anew",
}
"""What the app does by keys."""
SCREEN_ONLY = frozenset(name for name, one in commands.COMMANDS.items() if one.on_screen)
"""What lines of text have no place for. They are known, so that none is sent to the model."""
COMMANDS = {name: one.about for name, one in commands.COMMANDS.items()} | OWN
OFFERED = {name: about for name, about in COMMANDS.items() if name not in SCREEN_ONLY}


def command_of(text: str) -> tuple[str, str] | None:
    """The command that a text is, and the word after it or nothing; None for any other text."""
    return commands.command_of(text, COMMANDS)


def completions(text: str) -> list[str]:
    """The commands that a text may become."""
    if (begun := roles.begun(text)) is not None:
        return [f"{roles.COMMAND} {name}" for name in Roles.home().fitting(begun)]
    if not text.startswith("/"):
        return []
    return [name for name in OFFERED if name.startswith(text)]


class LinearCommands:
    def __init__(self, chat: LinearChat) -> None:
        self._chat = chat
        self._given = ""  # the word after the command
        self._doubt = Doubt(COMMANDS)
        self._does: dict[str, Callable[[], None]] = {
            "/new": lambda: self._new(temporary=False),
            "/temporary": lambda: self._new(temporary=True),
            "/list": self._list,
            "/search": self._search,
            "/find": self._find,
            "/regenerate": self._regenerate,
            "/continue": self._go_on,
            "/copy": self._copy,
            "/code": self._copy_code,
            "/rename": self._rename,
            "/title": self._title,
            "/pin": self._pin,
            "/system": self._system,
            "/settings": self._settings,
            "/role": self._role,
            "/help": self._help,
            "/show": self._show,
            "/compact": self._compact,
            "/edit": self._edit,
            "/before": lambda: self._switch(-1),
            "/after": lambda: self._switch(1),
            "/thoughts": self._thoughts,
            "/facts": self._facts,
            "/editor": self._editor,
            "/reconnect": self._reconnect,
        }

    def run(self, typed: str) -> None:
        """A command, with the word after it. Raises ClientError and KeyboardInterrupt."""
        self._doubt.about(typed)  # a command: what was asked before is of no account any more
        name, self._given = command_of(typed) or (typed, "")
        if name in self._does:
            self._does[name]()
        else:
            self._chat.say(f"{name} is for the full screen only")

    def doubts(self, text: str) -> bool:
        """Whether a text is nearly a command. Then that is said, and it is in the input again."""
        asked = self._doubt.about(text)
        if asked:
            self._chat.say(asked)
            self._chat.put(Typed(text))
        return bool(asked)

    def run_in_shell(self, typed: Typed) -> None:
        """A line for the shell. What it puts out is told, and goes with the next message."""
        before = typed.outputs
        self._chat.put(before)
        shell = ShellCommand(typed.command)
        try:
            ran = self._chat.wait(shell.run(), shell.stop)
        except ShellRefused as error:
            self._chat.say(str(error))
            return
        end = "" if ran.output.endswith("\n") or not ran.output else "\n"
        self._chat.write(f"{ran.output}{end}")
        self._chat.say(f"{ran.outcome}, {ran.size}; it goes with your next message")
        self._chat.put(before.followed_by(ran.fold))

    # ---- conversations ------------------------------------------------------------------------

    def _new(self, *, temporary: bool) -> None:
        self._chat.fresh(temporary=temporary)
        if temporary:
            self._chat.say("nothing of it is kept when you leave it")
        self._chat.wait(self._chat.talk.forget())

    def _list(self) -> None:
        found = self._chat.wait(self._conversations())
        if not found:
            self._chat.say("there are no conversations yet")
            return
        for number, one in enumerate(found, 1):
            mark = " (pinned)" if one.pinned else ""
            self._chat.write(f"{number}. {one_line(one.title) or 'Untitled'}{mark}\n")
        chosen = self._number("Number to open, or Enter: ", len(found))
        if chosen is not None:
            self._chat.open(found[chosen].id)

    async def _conversations(self) -> list[Conversation]:
        client = await self._chat.line.get()
        others = await client.conversations(limit=MOST_LISTED, pinned=False)
        return [*await pinned_ones(client), *others]

    def _search(self) -> None:
        query = self._chat.ask("Search for: ")
        if not query:
            return
        hits = self._chat.wait(self._hits(query))
        if not hits:
            self._chat.say("nothing found")
            return
        for number, hit in enumerate(hits, 1):
            snippet = one_line(hit.snippet.replace("\x02", "").replace("\x03", ""))
            self._chat.write(f"{number}. {one_line(hit.title) or 'Untitled'}: {snippet}\n")
        chosen = self._number("Number to open, or Enter: ", len(hits))
        if chosen is not None:
            self._chat.open(hits[chosen].conversation, hits[chosen].message)

    async def _hits(self, query: str) -> list[Hit]:
        return await (await self._chat.line.get()).search(query, limit=MOST_LISTED)

    def _number(self, asked: str, count: int) -> int | None:
        answer = self._chat.ask(asked)
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= count:
            return int(answer) - 1
        self._chat.say(f"there is no number {answer}")
        return None

    def _rename(self) -> None:
        id = self._chat.talk.id
        if id is None:
            self._chat.say("nothing was sent here yet")
            return
        title = self._chat.ask("New name: ")
        if title:
            self._chat.wait(self._renamed(id, title))
            self._chat.say(f"it is called {title}")

    async def _renamed(self, id: str, title: str) -> None:
        client = await self._chat.line.get()
        self._chat.talk.conversation = await client.update_conversation(id, title=title)

    def _title(self) -> None:
        id = self._chat.talk.id
        if id is None:
            self._chat.say("nothing was sent here yet")
            return
        name, titled = self._chat.wait(self._titled(id))
        self._chat.say(words.called(name, titled))

    async def _titled(self, id: str) -> tuple[str, bool]:
        found, titled = await (await self._chat.line.get()).find_title(id)
        self._chat.talk.conversation = found
        return one_line(found.title) or "Untitled", titled

    def _pin(self) -> None:
        id = self._chat.talk.id
        if self._chat.talk.temporary:
            self._chat.say("a temporary conversation is in no list")
            return
        if id is None:
            self._chat.say("nothing was sent here yet")
            return
        pinned = self._chat.wait(self._pinned(id))
        self._chat.say("it is pinned" if pinned else "it is no longer pinned")

    async def _pinned(self, id: str) -> bool:
        client = await self._chat.line.get()
        pinned = not (await client.conversation(id)).pinned
        self._chat.talk.conversation = await client.update_conversation(id, pinned=pinned)
        return pinned

    def _system(self) -> None:
        now = self._chat.talk.tuning
        self._chat.say("an empty system prompt takes it away; Ctrl+C leaves it as it is")
        before = now.system or ""
        typed = self._chat.ask("System prompt: ", before)
        if typed not in (before, clean(before).strip()):
            self._tune(replace(now, system=typed))

    def _settings(self) -> None:
        now = self._chat.talk.tuning
        self._chat.say("temperature=0.2 seed=7, or nothing; Ctrl+C leaves them as they are")
        typed = self._chat.ask("Parameters: ", now.line)
        if typed == now.line:
            return
        try:
            settings = read_settings(typed)
        except ValueError as error:
            self._chat.say(str(error))
            return
        self._tune(replace(now, settings=settings))

    def _role(self) -> None:
        found, name = Roles.home(), self._given
        names = found.names()
        if not name and names:
            for number, one in enumerate(names, 1):
                self._chat.write(f"{number}. {one}\n")
            chosen = self._number("Number of the role, or Enter: ", len(names))
            if chosen is None:
                return
            name = names[chosen]
        try:
            role = found.read(name)
        except (BadRole, NoRole) as error:
            self._chat.say(error.message)
            return
        self._tune(roles.tuned(self._chat.talk.tuning, role))
        if elsewhere := self._chat.wait(roles.other_model(self._chat.line, role)):
            self._chat.say(elsewhere)

    def _tune(self, wanted: Tuning) -> None:
        self._chat.wait(self._chat.talk.tune(wanted))
        self._chat.say(f"from the next message on: {self._chat.talk.tuning.words or AS_USUAL}")

    def _reconnect(self) -> None:
        if self._chat.line.client is None:
            self._chat.wait(self._chat.connect())
        if self._chat.talk.id is not None:
            self._chat.open(self._chat.talk.id)

    # ---- this conversation --------------------------------------------------------------------

    def _show(self) -> None:
        self._chat.wait(self._chat.talk.read_all())
        self._chat.tell(self._chat.talk.entries)

    def _find(self) -> None:
        wanted = self._chat.ask("Find: ").casefold()
        if not wanted:
            return
        count = 0
        self._chat.wait(self._chat.talk.read_all())
        for entry in self._chat.talk.entries:
            who = "You" if entry.role == USER else one_line(entry.model or "Assistant")
            for line in entry.text.split("\n"):
                if wanted in line.casefold():
                    count += 1
                    self._chat.write(f"{who}: {line}\n")
        self._chat.say(f"{count} lines found")

    def _regenerate(self) -> None:
        reply = self._last_reply()
        if reply is not None and reply.parent is not None:
            self._chat.follow(self._chat.wait(self._chat.talk.regenerate(reply)))

    def _go_on(self) -> None:
        reply = self._last_reply()
        if reply is not None:
            self._chat.follow(self._chat.wait(self._chat.talk.go_on(reply)), more=True)

    def _compact(self) -> None:
        stop = compaction.Stop()
        doing = compaction.compact(self._chat.talk, stop, self._chat.say)
        self._chat.say(self._chat.wait(doing, stop.ask))

    def _switch(self, step: int) -> None:
        """Of the last message that has versions; of a conversation that was compacted the first
        one has: what was before is one of them."""
        several = [one for one in self._chat.talk.entries if len(one.siblings) > 1]
        reply = several[-1] if several else self._last_reply()
        if reply is None:
            return
        shown = self._chat.wait(self._chat.talk.switch(reply, step))
        if shown is None:
            self._chat.say("there is no other version that way")
            return
        at = shown.siblings.index(shown.id) + 1
        self._chat.say(f"version {at} of {len(shown.siblings)}")
        self._chat.tell([shown])

    def _edit(self) -> None:
        for entry in reversed(self._chat.talk.entries):
            if entry.role == USER:
                self._chat.edit(entry)
                return
        self._chat.say("there is no message of yours here")

    def _last_reply(self) -> Entry | None:
        for entry in reversed(self._chat.talk.entries):
            if entry.role == ASSISTANT:
                return entry
        self._chat.say("there is no reply here")
        return None

    def _thoughts(self) -> None:
        reply = self._last_reply()
        if reply is None:
            return
        thoughts = Telling(reply, self._chat.write).thoughts
        self._chat.write(f"{thoughts.rstrip()}\n" if thoughts else "hobnob: there are none\n")

    def _facts(self) -> None:
        reply = self._last_reply()
        if reply is not None:
            self._chat.say(", ".join(words.footer(reply)) or "nothing is known of it")

    # ---- text ---------------------------------------------------------------------------------

    def _copy(self) -> None:
        entries = self._chat.talk.entries
        if entries:
            self._copied(entries[-1].text)

    def _copy_code(self) -> None:
        blocks = code_blocks.of_last(self._chat.talk.entries)
        choice = code_blocks.choose(blocks, code_blocks.number_of(self._given))
        if choice.code is not None:
            self._copied(choice.code, choice.words)
        else:
            self._chat.say(choice.words)

    def _copied(self, text: str, which: str = "") -> None:
        words = self._chat.wait(clipboard.copy_and_say(text, self._to_terminal))
        self._chat.say(f"{which}{words}")

    def _to_terminal(self, sequence: str) -> None:
        self._chat.write_to_terminal(sequence)

    def _editor(self) -> None:
        try:
            text = self._chat.edit_outside("")
        except OSError as error:
            self._chat.say(f"the editor could not be run: {error}")
            return
        self._chat.put(Typed(text or ""))

    def _help(self) -> None:
        for name, about in OFFERED.items():
            self._chat.write(f"{name}: {about}\n")
        self._chat.write(HELP)


HELP = """\
Enter sends. Ctrl+J, or a backslash before Enter, begins a new line. Up: earlier prompts.
Ctrl+R searches them. Tab completes a command. Ctrl+C stops a reply, or drops what is typed.
Ctrl+D on an empty line leaves; a reply that is being written goes on in the server.
A line that begins with ! is run in your shell, and what it puts out goes with your next message;
Ctrl+C stops it. !! or a space before the ! sends the line instead.
"""
