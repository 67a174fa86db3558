"""What the text thread does: messages and texts to token ids, with the vocabulary alone.

Owns a vocabulary-only load of the model, its chat template, and a small memory of texts already
tokenised. Every input is bounded before llama.cpp sees it. One thread at a time; the thread needs
the usual 8 MiB of stack (see MAX_CHUNK_CHARS).
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

from hobnob.server.engine.llama import LlamaError, LoadError, Vocab
from hobnob.server.engine.protocol import ChatMessage, TextReady
from hobnob.server.engine.sandbox import TemplateBroken, TemplateError, TextTooLong
from hobnob.server.engine.template import CHATML, PLAIN, ChatTemplate, Marker, Part, Reply, Text

MAX_TEXT_CHARS = 16_000_000  # of all messages together, whatever the window
MAX_CHUNK_CHARS = 4096
"""Longer texts are cut where llama.cpp does not bear them. Byte-level vocabularies: many of its
pre-tokenizers match with std::regex, which recurses for every character of a match (about 500
bytes of stack; 50,000 letters in a row ended the process). SentencePiece vocabularies: the time
for characters that are no token is quadratic (a million newlines took 408 s)."""
MEMORY_CHARS = 4_000_000  # of texts whose ids are remembered
MEMORY_MIN_CHARS = 64
FALLBACK_CTX_TOKENS = 1_000_000  # where the file names no window

_LSTRIP, _RSTRIP = 1 << 7, 1 << 8  # llama.h: a token that takes the white space beside it
# Where no pre-tokenizer matches across: after a letter or digit, before a space or newline.
_BORDER = re.compile(r"[^\W_][ \n]")
# Where hardly any does: after a letter or digit, before punctuation that no word goes on with.
_CHANGE = re.compile(
    r"(?<=[^\W_])[!-&(-/:-@\[-^{-~\u3001-\u3003\u3008-\u3011\uff01\uff0c\uff1a\uff1b\uff1f]"
)
_TEMPLATE_KEYS = (
    "tokenizer.chat_template",
    "tokenizer.chat_template.default",
    "tokenizer.chat_template.tool_use",
)
_SURROGATE = re.compile("[\ud800-\udfff]")

__all__ = ["TemplateError", "TextService", "TextTooLong"]


class Words(Protocol):
    """What is used of llama.Vocab."""

    n_vocab: int
    bos: int
    eos: int
    add_bos: bool

    def tokenize(self, text: str, special: bool = False) -> list[int]: ...
    def piece(self, token: int, special: bool = False) -> bytes: ...
    def attr(self, token: int) -> int: ...
    def is_control(self, token: int) -> bool: ...
    def is_eog(self, token: int) -> bool: ...
    def special_tokens(self) -> dict[str, int]: ...
    def meta(self, key: str) -> str | None: ...
    def digest(self) -> str: ...
    def close(self) -> None: ...
    @property
    def n_ctx_train(self) -> int: ...


class TextService:
    """Rendering and tokenising for one model file."""

    def __init__(self, vocab: Words, *, stem: str, n_ctx: int = 0) -> None:
        """`n_ctx` is the configured window, when it is larger than the trained one."""
        self._vocab = vocab
        self._special = vocab.special_tokens()
        self._tokenizer = Tokenizer(vocab)
        self._longest: int | None = None
        self._n_ctx = max(vocab.n_ctx_train or FALLBACK_CTX_TOKENS, n_ctx)
        self.notes: list[str] = []
        """One sentence for everything about the template that a person should know."""
        self._template, own = self._choose()
        self.info = TextReady(
            name=vocab.meta("general.name") or stem,
            vocab_hash=vocab.digest(),
            template_hash=hashlib.sha256(self._template.source.encode()).hexdigest()[:16],
            has_template=own,
            n_vocab=vocab.n_vocab,
            n_ctx_train=vocab.n_ctx_train,
        )

    @classmethod
    def open(cls, path: Path, *, n_ctx: int = 0) -> Self:
        """Raises llama.LoadError."""
        vocab = Vocab.open(path)
        if vocab.meta("tokenizer.ggml.model") == "no_vocab":  # tokenising would end the process
            vocab.close()
            raise LoadError(f"{path.name} has no vocabulary.")
        return cls(vocab, stem=path.stem, n_ctx=n_ctx)

    def close(self) -> None:
        self._vocab.close()

    def render(
        self, messages: Sequence[ChatMessage], add_generation_prompt: bool = True
    ) -> list[int]:
        """The prompt's ids. Raises TemplateError."""
        self._check_length(sum(len(m.text) for m in messages))
        clean = [ChatMessage(m.role, _clean(m.text), self._known(m)) for m in messages]
        try:
            ids = self._ids(self._template.render(clean, add_generation_prompt))
        except LlamaError as error:
            raise TemplateError(str(error)) from error
        if self._vocab.add_bos and self._vocab.bos >= 0 and ids[:1] != [self._vocab.bos]:
            ids.insert(0, self._vocab.bos)
        return ids

    def tokenize(self, text: str, *, inside: bool = False) -> list[int]:
        """Ids of plain text; special tokens are text like any other. `inside`: it goes on from
        other text. Raises TemplateError."""
        self._check_length(len(text))
        try:
            return self._tokenizer.ids(_clean(text), inside)
        except LlamaError as error:
            raise TemplateError(str(error)) from error

    def _ids(self, parts: Sequence[Part]) -> list[int]:
        ids: list[int] = []
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            if isinstance(part, Marker):
                ids.append(part.token)
            elif isinstance(part, Reply):
                ids += part.tokens
            else:
                for n, fragment in enumerate(self._trimmed(before, part, after)):
                    ids += self._tokenizer.ids(fragment, n > 0 or isinstance(before, Reply))
        return ids

    def _trimmed(self, before: Part | None, part: Text, after: Part | None) -> list[str]:
        """The fragments without the white space that the tokens beside them take, in some
        vocabularies."""
        first, *others = part.fragments
        if isinstance(before, Marker) and self._vocab.attr(before.token) & _RSTRIP:
            first = first.lstrip()
        fragments = [first, *others]
        if isinstance(after, Marker) and self._vocab.attr(after.token) & _LSTRIP:
            fragments[-1] = fragments[-1].rstrip()
        return fragments

    def _known(self, message: ChatMessage) -> list[int] | None:
        """The message's ids, if they are the ids of its text.

        They are not where a stop string was cut off, or the ids are of another vocabulary.
        """
        tokens = list(message.tokens or ())
        if any(not 0 <= t < self._vocab.n_vocab for t in tokens):
            return None
        while tokens and self._vocab.is_eog(tokens[-1]):
            tokens.pop()
        written = b"".join(map(self._vocab.piece, tokens)).decode("utf-8", "replace")
        return tokens if tokens and written == message.text else None

    # ---- bounds ----

    def _check_length(self, chars: int) -> None:
        """Refuses what cannot fit the window even if every token were the longest one.

        Cheap, and before any work on the text; what may fit is counted exactly later.
        """
        if chars <= self._n_ctx:
            return
        if self._longest is None:
            self._longest = max(len(self._vocab.piece(t, True)) for t in range(self._vocab.n_vocab))
        most = min(self._n_ctx * self._longest, MAX_TEXT_CHARS)
        if chars > most:
            raise TextTooLong(
                f"The text has {chars} characters; the context window of {self._n_ctx} tokens "
                f"holds {most} at the very most."
            )

    # ---- the template ----

    def _choose(self) -> tuple[ChatTemplate, bool]:
        source, note = _source(self._vocab.meta)
        if source is not None:
            try:
                return self._compile(source), True
            except TemplateBroken as error:
                note = str(error)
        if {"<|im_start|>", "<|im_end|>"} <= self._special.keys():
            source, name = CHATML, "the ChatML form, whose tokens it knows"
        else:
            source, name = PLAIN, 'plain lines "User:" and "Assistant:"'
        self.notes.append(f"{note} Messages are written in {name}.")
        return self._compile(source), False

    def _compile(self, source: str) -> ChatTemplate:
        control = {t: i for t, i in self._special.items() if self._vocab.is_control(i)}
        defined = {t: i for t, i in self._special.items() if t not in control}
        return ChatTemplate.of(
            source,
            control,
            defined,
            bos=self._spelling(self._vocab.bos),
            eos=self._spelling(self._vocab.eos),
        )

    def _spelling(self, token: int) -> str:
        return "" if token < 0 else self._vocab.piece(token, True).decode("utf-8", "replace")


class Tokenizer:
    """Text to ids, with long runs cut and no space added in the middle of a text."""

    def __init__(self, vocab: Words) -> None:
        self._vocab = vocab
        self._everywhere = vocab.meta("tokenizer.ggml.model") == "llama"
        self._adds_space = self._written(vocab.tokenize("a")).startswith(b" ")
        self._newline = vocab.tokenize("\n")
        self._memory: OrderedDict[tuple[str, bool], array[int]] = OrderedDict()
        self._memory_chars = 0

    def ids(self, text: str, inside: bool = False) -> list[int]:
        """`inside`: the text goes on from other text, so no space belongs before it."""
        if len(text) < MEMORY_MIN_CHARS:
            return self._ids(text, inside)
        known = self._memory.get((text, inside))
        if known is None:
            known = array("i", self._ids(text, inside))
            self._remember((text, inside), known)
        self._memory.move_to_end((text, inside))
        return known.tolist()

    def _remember(self, key: tuple[str, bool], ids: array[int]) -> None:
        self._memory[key] = ids
        self._memory_chars += len(key[0])
        while self._memory_chars > MEMORY_CHARS and len(self._memory) > 1:
            (dropped, _), _ = self._memory.popitem(last=False)
            self._memory_chars -= len(dropped)

    def _ids(self, text: str, inside: bool) -> list[int]:
        ids: list[int] = []
        for chunk in _chunks(text, self._everywhere):
            ids += self._chunk(chunk, inside or bool(ids))
        return ids

    def _chunk(self, text: str, inside: bool) -> list[int]:
        if inside and self._adds_space:
            # A newline takes the space and joins with nothing in these vocabularies.
            ids = self._vocab.tokenize("\n" + text)
            if ids[: len(self._newline)] == self._newline:
                return ids[len(self._newline) :]
        return self._vocab.tokenize(text) if text else []

    def _written(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._vocab.piece, ids))


def _chunks(text: str, everywhere: bool) -> Iterator[str]:
    """The text in pieces of at most MAX_CHUNK_CHARS, cut at safe borders where there are any.

    `everywhere` False: cut only what has no safe border for so long; usually one piece.
    """
    start = border = 0
    borders = (found.start() + 1 for found in _BORDER.finditer(text))
    for at in (*borders, len(text)) if len(text) > MAX_CHUNK_CHARS else ():
        if everywhere and at - start > MAX_CHUNK_CHARS and border > start:
            yield text[start:border]
            start = border
        while at - border > MAX_CHUNK_CHARS:
            border = _least_bad(text, border)
            yield text[start:border]
            start = border
        border = at
    yield text[start:]


def _least_bad(text: str, start: int) -> int:
    """Where to cut at most MAX_CHUNK_CHARS after `start`."""
    most = start + MAX_CHUNK_CHARS
    changes = _CHANGE.finditer(text, most - MAX_CHUNK_CHARS // 2, most)
    return max((found.start() for found in changes), default=most)


def _clean(text: str) -> str:
    """Lone surrogates have no bytes in UTF-8: U+FFFD stands for them."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _source(meta: Callable[[str], str | None]) -> tuple[str | None, str]:
    """The file's template for chats, or None and a sentence that says why there is none."""
    for key in _TEMPLATE_KEYS:
        found = meta(key)
        if found is None:
            continue
        source = _of_list(found) if found.lstrip().startswith("[") else found
        if not source.strip():
            return None, "The model's chat template is empty."
        if "{{" not in source and "{%" not in source:
            return None, "The model's chat template is not a template."
        return source, ""
    return None, "The model has no chat template."


def _of_list(text: str) -> str:
    """The default one of a list of templates, which some converters write into the one key."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return text
    named = {
        str(item.get("name")): str(item.get("template", ""))
        for item in items
        if isinstance(item, dict)
    }
    first = next(iter(named.values()), next((i for i in items if isinstance(i, str)), ""))
    return named.get("default", first)
