"""What was said before a question, as JSON: `hobnob ask --messages FILE`.

It is an array of `{"role", "content"}`, an object with such `messages` (a request to a chat API,
or what `hobnob history show --json` prints), or a message a line. Pure but for the reading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hobnob.tui import stdin
from hobnob.tui.question import Question
from hobnob.tui.stdin import PromptError

STDIN = "-"
USER, ASSISTANT = "user", "assistant"
_SYSTEM = ("system", "developer")
_SPEAKERS = {USER: "the user's", ASSISTANT: "the assistant's"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The user's messages and the assistant's in turn, the user's first."""

    name: str  # of where it is from, for people
    system: str | None
    said: list[tuple[str, str]]

    def asked(self, prompt: str | None) -> tuple[str, list[tuple[str, str]]]:
        """The message to be answered, and those before it. Raises PromptError."""
        ends_with_user = bool(self.said) and self.said[-1][0] == USER
        if prompt is not None and ends_with_user:
            raise PromptError(
                f"The last message of {self.name} is the user's: it is asked, without a PROMPT."
            )
        if prompt is not None:
            return prompt, self.said
        if not ends_with_user:
            raise PromptError(f"The last message of {self.name} is not the user's: give a PROMPT.")
        return self.said[-1][1], self.said[:-1]


def complete(question: Question, words: Sequence[str], waiting: Callable[[str], None]) -> Question:
    """With the prompt of the arguments, of stdin and of the file of messages; a file that ends
    with the user's message needs neither words nor stdin. Raises PromptError."""
    if question.messages is None:
        return replace(question, prompt=stdin.join(words, stdin.read_stdin(waiting)))
    from_stdin = question.messages == STDIN
    if from_stdin:
        text = stdin.read_stdin(waiting)
        if text is None:
            raise PromptError("Stdin is a terminal: give --messages a FILE, or pipe them in.")
        dialogue = parse(text, "stdin")
    else:
        dialogue = parse(stdin.read_file(question.messages), question.messages)
    data = None if from_stdin or not words else stdin.read_stdin(waiting)
    prompt, history = dialogue.asked(stdin.join(words, data) if words else None)
    system = question.system if question.system is not None else dialogue.system
    return replace(question, prompt=prompt, history=history, system=system)


def parse(text: str, name: str) -> Dialogue:
    """Raises PromptError, one sentence."""
    raw, system = _messages(text, name)
    said: list[tuple[str, str]] = []
    for number, one in enumerate(raw, 1):
        where = f"Message {number} of {name}"
        role, content = _message(one, where)
        if role in _SYSTEM:
            if number > 1:
                raise PromptError(f"{where} is a system message; only the first one may be.")
            system = content
            continue
        expected = ASSISTANT if said and said[-1][0] == USER else USER
        if role != expected:
            raise PromptError(
                f"{where} is {_SPEAKERS[role]}, and it is {_SPEAKERS[expected]} turn: the two "
                "take turns, and the user begins."
            )
        said.append((role, content))
    if not raw:
        raise PromptError(f"There are no messages in {name}.")
    return Dialogue(name, system, said)


def _messages(text: str, name: str) -> tuple[list[Any], str | None]:
    """The messages as they are given, and the system prompt of an object that has one."""
    found = _json(text, name)
    if isinstance(found, list):
        return found, None
    if isinstance(found, dict) and isinstance(found.get("messages"), list):
        system = found.get("system")
        return found["messages"], system if isinstance(system, str) and system else None
    if isinstance(found, dict) and "role" in found:
        return [found], None
    raise PromptError(
        f"{name} has no messages: they are an array of objects with role and content, or such an "
        "object a line."
    )


def _json(text: str, name: str) -> Any:
    """One value, or a list of those that are a line each."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        whole = PromptError(
            f"{name} is no JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        )
    except (ValueError, RecursionError):
        raise PromptError(f"{name} is no JSON that can be read.") from None
    found: list[Any] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            if not found:
                raise whole from None
            raise PromptError(f"Line {number} of {name} is no JSON.") from None
    return found


def _message(raw: Any, where: str) -> tuple[str, str]:
    if not isinstance(raw, dict):
        raise PromptError(f"{where} is no object with role and content.")
    role = raw.get("role")
    if role not in (*_SPEAKERS, *_SYSTEM):
        raise PromptError(f"{where} has another role than system, user or assistant.")
    if raw.get("tool_calls"):
        raise PromptError(f"{where} calls tools, which are not sent.")
    text = _text(raw.get("content", raw.get("text")), where)
    if not text.strip():
        raise PromptError(f"{where} is empty.")
    return role, text


def _text(content: Any, where: str) -> str:
    """A string, or the text parts of a list, as the API of OpenAI takes them."""
    texts: list[str] = []
    for one in content if isinstance(content, list) else [content]:
        text = one.get("text") if isinstance(one, dict) and one.get("type") == "text" else one
        if not isinstance(text, str):
            raise PromptError(f"{where} has content that is no text.")
        texts.append(text)
    return _LONE_SURROGATE.sub("\ufffd", "\n".join(texts))
