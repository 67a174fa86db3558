"""Messages to the parts of a prompt, through the model's chat template.

Promises that control tokens come from the template alone: what messages contain is text, whatever
it looks like. Replies whose token ids are known go in as those ids, so that a conversation's
prompt goes on exactly where the turn before ended. Pure; knows no vocabulary but the texts of
its special tokens (`Markers`), and turns no text into ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from hobnob.server.engine.forms import forms
from hobnob.server.engine.protocol import ChatMessage
from hobnob.server.engine.sandbox import Program, TemplateBroken, TemplateError, TemplateRefused

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = (
    "{% for m in messages %}{{ m.role | capitalize + ': ' + m.content + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For a model without a template that knows no chat tokens either: roles as plain words."""

_PROBE = [ChatMessage("user", "one"), ChatMessage("assistant", "two"), ChatMessage("user", "3")]
_STAND_INS = range(0x100000, 0x10FFFE)  # private characters that no script and no template uses
_STAND_IN = re.compile(f"[{chr(_STAND_INS.start)}-{chr(_STAND_INS.stop - 1)}]")


@dataclass(frozen=True, slots=True)
class Marker:
    """A special token that the template wrote."""

    token: int


@dataclass(frozen=True, slots=True)
class Text:
    """Text without special tokens. Each fragment is tokenised by itself: the borders between
    them lie inside what would become one of the template's own tokens."""

    fragments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A message's ids, as they were generated."""

    tokens: tuple[int, ...]


Part = Marker | Text | Reply


@dataclass(frozen=True, slots=True)
class Markers:
    """The special tokens by their texts.

    `control` are the vocabulary's control tokens. `named` are ordinary tokens of the vocabulary
    that the template uses as marks all the same (`<think>`, in some files `<|user|>`). A tokenizer
    makes these out of any text, so in messages they are broken into two fragments; except in
    replies, where the model wrote them and templates look for them.
    """

    control: Mapping[str, int]
    named: Mapping[str, int] = field(default_factory=dict)


class ChatTemplate:
    """A compiled template with the special tokens that it may write. One thread at a time."""

    def __init__(
        self,
        source: str,
        markers: Markers,
        *,
        bos: str = "",
        eos: str = "",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Raises TemplateBroken."""
        self.source = source
        self.markers = markers
        self.ids = {**markers.named, **markers.control}
        self.all = _pattern(self.ids)
        self.control = _pattern(markers.control)
        self._program = Program(source, now=now)
        self._variables = {"bos_token": bos, "eos_token": eos, "tools": None, "documents": None}

    @classmethod
    def of(
        cls,
        source: str,
        control: Mapping[str, int],
        user_defined: Mapping[str, int],
        *,
        bos: str = "",
        eos: str = "",
    ) -> Self:
        """Finds out which user-defined tokens the template uses. Raises TemplateBroken."""
        first = cls(source, Markers(control), bos=bos, eos=eos)
        try:
            written = source + first.text(_PROBE, True)
        except TemplateError:
            written = source
        named = {t: i for t, i in user_defined.items() if _is_mark(t) and t in written}
        return cls(source, Markers(control, named), bos=bos, eos=eos) if named else first

    def text(
        self,
        messages: Sequence[ChatMessage],
        add_generation_prompt: bool,
        content: Sequence[str] | None = None,
    ) -> str:
        """The rendered text, as `apply_chat_template(tokenize=False)` gives it.

        `content` stands in for the messages' own texts. Raises TemplateError.
        """
        texts = [m.text for m in messages] if content is None else content
        dicts = [{"role": m.role, "content": t} for m, t in zip(messages, texts, strict=True)]
        given = {"messages": dicts, "add_generation_prompt": add_generation_prompt}
        return self._program.render(self._variables | given)

    def render(self, messages: Sequence[ChatMessage], add_generation_prompt: bool) -> list[Part]:
        """The prompt's parts. Raises TemplateError.

        Without a generation prompt, a last message of the assistant is left open: the reply will
        go on from its end. Messages that the template refuses or would leave out are tried again
        in the other forms of forms.py.
        """
        if any(m.role not in ROLES for m in messages):
            raise TemplateError("A message has a role that is not known.")
        given = list(messages)
        if given and given[-1].role == "assistant" and not given[-1].text:
            given.pop()  # nothing to go on from
            add_generation_prompt = True
        if not given:
            raise TemplateError("There is no message to answer.")
        refused: TemplateRefused | None = None
        for form in forms(given, self.source):
            try:
                return _Rendering(self, form, add_generation_prompt).parts()
            except TemplateRefused as error:
                refused = refused or error
        assert refused is not None, "forms() gave nothing"
        raise refused


def _is_mark(text: str) -> bool:
    """Not white space or a word, which are user-defined in some vocabularies too."""
    return len(text.strip()) >= 3 and not text[0].isalnum() and not text[0].isspace()


# ---- one rendering ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fence:
    """Two characters around a message, by which it is found again in the rendered text."""

    before: str
    after: str
    content: str
    tokens: tuple[int, ...]

    def __str__(self) -> str:
        return self.before + self.content + self.after


class _Rendering:
    """One form of the messages on its way to parts."""

    def __init__(self, template: ChatTemplate, form: list[ChatMessage], generation: bool) -> None:
        self._template = template
        self._form = form
        self._generation = generation
        self._open = len(form) - 1 if not generation and form[-1].role == "assistant" else None
        used = set(_STAND_IN.findall("".join(m.text for m in form)))
        self._free = (chr(c) for c in _STAND_INS if chr(c) not in used)
        self._stand_ins: dict[str, str] = {}  # what is masked -> its stand-in
        self._shown: dict[str, tuple[str, ...]] = {}  # stand-in -> its fragments, none: a fence
        self._content = [self._masked(m) for m in form]

    def parts(self) -> list[Part]:
        reference = self._run({})
        self._check_complete(reference)
        text, fences = self._fenced(reference)
        if self._open is not None:
            text = self._cut(self._open, text, fences)
        parts: list[Part] = []
        for fence in sorted(fences.values(), key=lambda f: text.find(f.before)):
            if fence.tokens:
                head, _, text = text.partition(str(fence))
                parts += [*self._split(head), Reply(fence.tokens)]
        return [*parts, *self._split(text)]

    def _run(self, fences: Mapping[int, _Fence]) -> str:
        content = [str(fences.get(i, text)) for i, text in enumerate(self._content)]
        return self._template.text(self._form, self._generation, content)

    def _check_complete(self, reference: str) -> None:
        """Some templates drop a system message that they do not expect, without a word."""
        wanted = [
            (m.role, c.strip())
            for m, c in zip(self._form, self._content, strict=True)
            if m.role in ("system", "developer", "user")
        ]
        at = 0
        for role, content in wanted:
            found = reference.find(content, at)
            if found >= 0:
                at = found + len(content)
            elif reference.count(content) < sum(content == c for _, c in wanted):
                raise TemplateRefused(f"The model's chat template leaves out a {role} message.")

    # ---- messages that are found again ----

    def _fenced(self, reference: str) -> tuple[str, dict[int, _Fence]]:
        """The rendering with fences around the replies of which the template keeps the whole.

        The template must not see a difference: all else has to be as in the reference, where
        only white space at the ends of a fenced reply may have been trimmed.
        """
        fences = {
            i: _Fence(self._stand_in(), self._stand_in(), self._content[i], tuple(m.tokens or ()))
            for i, m in enumerate(self._form)
            if m.role == "assistant" and m.text and (m.tokens or i == self._open)
        }
        while fences:
            text = self._run(fences)
            whole = {i: f for i, f in fences.items() if text.count(str(f)) == 1}
            if whole == fences:
                return (text, fences) if self._agrees(reference, text, fences) else (reference, {})
            fences = whole
        return reference, {}

    def _agrees(self, reference: str, text: str, fences: Mapping[int, _Fence]) -> bool:
        at = 0
        content = ""
        for fence in [*sorted(fences.values(), key=lambda f: text.find(f.before)), None]:
            literal, _, text = text.partition(str(fence)) if fence else (text, "", "")
            for kept in (content, content.strip(), content.lstrip(), content.rstrip()):
                if reference.startswith(kept + literal, at):
                    at += len(kept) + len(literal)
                    break
            else:
                return False
            content = fence.content if fence else ""
        return at == len(reference)

    def _cut(self, last: int, text: str, fences: Mapping[int, _Fence]) -> str:
        """The text up to the end of the last message, which is to be continued."""
        end = fences.get(last)
        if end is None:  # the template keeps only a part of it: only its end can be marked
            end = _Fence("", self._stand_in(), self._content[last], ())
            text = self._run({**fences, last: end})
        if text.count(end.after) != 1:
            raise TemplateRefused("The model's chat template cannot leave a reply open.")
        return text[: text.index(end.after)] + end.after

    # ---- special tokens ----

    def _stand_in(self, *fragments: str) -> str:
        char = next(self._free, None)
        if char is None:
            raise TemplateError("The messages use up all private characters of Unicode.")
        self._shown[char] = fragments
        return char

    def _mask(self, text: str) -> str:
        if text not in self._stand_ins:
            named = text not in self._template.markers.control and len(text) > 1
            self._stand_ins[text] = self._stand_in(*((text[:1], text[1:]) if named else (text,)))
        return self._stand_ins[text]

    def _masked(self, message: ChatMessage) -> str:
        """The text with stand-ins for whatever the template's tokens could be read in."""
        reply = message.role == "assistant"
        pattern = self._template.control if reply else self._template.all
        text = pattern.pattern.sub(lambda found: self._mask(found[0]), message.text)
        # A token may also begin in the text and end in the template's next words.
        for at in {*pattern.begun(text), *pattern.ended(text)}:
            text = text[:at] + self._mask(text[at]) + text[at + 1 :]
        return text

    def _split(self, text: str) -> Iterator[Part]:
        at = 0
        for found in self._template.all.pattern.finditer(text):
            yield from self._unmasked(text[at : found.start()])
            yield Marker(self._template.ids[found[0]])
            at = found.end()
        yield from self._unmasked(text[at:])

    def _unmasked(self, text: str) -> Iterator[Text]:
        fragments = [""]
        at = 0
        for found in _STAND_IN.finditer(text):
            if found[0] not in self._shown:
                continue  # one that was in a message
            first, *others = self._shown[found[0]] or ("",)
            fragments[-1] += text[at : found.start()] + first
            fragments += others
            at = found.end()
        fragments[-1] += text[at:]
        if any(fragments):
            yield Text(tuple(fragments))


# ---- finding tokens in text -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Finds any of the tokens, the longest first, in time that does not depend on how many."""

    pattern: re.Pattern[str]
    beginnings: frozenset[str]
    endings: frozenset[str]
    longest: int

    def begun(self, text: str) -> list[int]:
        """Where tokens begin that the end of the text cuts off."""
        sizes = range(1, min(self.longest, len(text)) + 1)
        return [len(text) - n for n in sizes if text[-n:] in self.beginnings]

    def ended(self, text: str) -> list[int]:
        """Where tokens end that the beginning of the text cuts off."""
        sizes = range(1, min(self.longest, len(text)) + 1)
        return [n - 1 for n in sizes if text[:n] in self.endings]


def _pattern(texts: Iterable[str]) -> _Pattern:
    words = sorted(t for t in texts if t)
    try:
        pattern = re.compile(_any_of(words, 0) if words else r"(?!)")
    except RecursionError as error:
        raise TemplateBroken("The model's special tokens are nested too deeply.") from error
    return _Pattern(
        pattern,
        frozenset(w[:n] for w in words for n in range(1, len(w))),
        frozenset(w[n:] for w in words for n in range(1, len(w))),
        max(map(len, words), default=0),
    )


def _any_of(words: Sequence[str], at: int) -> str:
    """A regular expression for sorted words that share their first `at` characters."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[at : at + 1], []).append(word)
    ends = groups.pop("", None) is not None
    branches = []
    for same in groups.values():
        to = _common(same)
        branches.append(re.escape(same[0][at:to]) + _any_of(same, to))
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if ends else ''}"


def _common(words: Sequence[str]) -> int:
    """The length of the beginning that all of the sorted words share."""
    first, last = words[0], words[-1]
    n = min(len(first), len(last))
    return next((i for i in range(n) if first[i] != last[i]), n)
