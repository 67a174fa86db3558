"""What `hobnob ask` is asked to do, and what of it does not go together. Pure; imports nothing
heavy, so that wrong use is said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """What the command line asks for. With `resume` (a run's id) there is no prompt."""

    prompt: str = ""
    history: Sequence[tuple[str, str]] = ()  # what was said before: who (a role) and what
    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None  # the reply is JSON that satisfies it
    model: str | None = None
    continue_last: bool = False
    conversation: str | None = None  # an id, its beginning, or a name
    after: str | None = None  # id of the reply that the prompt follows
    messages: str | None = None  # the file that `history` is read from
    name: str | None = None  # of the new conversation
    resume: str | None = None
    printed: int | None = None  # bytes of the resumed reply that are printed already
    as_json: bool = False
    events: bool = False  # print the run's events, a JSON object a line, and nothing else
    code: bool = False  # print the contents of the code blocks only
    render: bool = False  # on a terminal: its Markdown drawn, block after block
    stream: bool = True
    fail_on_truncation: bool = False
    count: bool = False  # send nothing
    quiet: bool = False
    temporary: bool = False  # delete the (new) conversation at the end, whatever it was

    @property
    def sent_options(self) -> dict[str, Any]:
        """The options as the API takes them."""
        if self.schema is None:
            return dict(self.options)
        from hobnob.tui.schema import response_format

        return {**self.options, "response_format": response_format(self.schema)}

    @property
    def goes_on(self) -> bool:
        """In a conversation that is there."""
        return bool(self.continue_last or self.conversation or self.after)

    def problem(self, words: Sequence[str]) -> str | None:
        """Why it cannot be asked so with these words, a sentence; None where it can."""
        no_text = self.events or self.code or self.render
        resuming = self.resume is not None
        asked = bool(words or self.system or self.options or self.model or self.schema is not None)
        of_new = self.messages is not None or self.name is not None
        rules = {
            "--temporary begins a conversation of its own.": self.temporary
            and (self.goes_on or bool(self.resume)),
            "--json, --events, --code and --render are four forms: choose one.": self.as_json
            + self.events
            + self.code
            + self.render
            > 1,
            "--printed counts the bytes of a reply that is not rendered.": self.render
            and self.printed is not None,
            "--events prints all events as they come.": self.events
            and (not self.stream or bool(self.printed)),
            "--schema asks for JSON, which has no code blocks and is not drawn.": (
                self.schema is not None and (self.code or self.render)
            ),
            "--count sends nothing, so there is no reply to print.": self.count
            and (no_text or resuming),
            "--count takes a system prompt for a new conversation only.": self.count
            and self.system is not None
            and self.goes_on,
            "--resume takes no prompt: the reply it names has one.": resuming
            and (asked or self.goes_on or of_new),
            "--messages begins a conversation of its own.": self.messages is not None
            and self.goes_on,
            "--name is for a new conversation; `hobnob history rename` names another.": (
                self.name is not None and self.goes_on
            ),
            "Nothing is kept that --name could be the name of.": self.name is not None
            and (self.temporary or self.count),
            "The name is empty.": self.name is not None and not self.name.strip(),
        }
        return next((sentence for sentence, broken in rules.items() if broken), None)
