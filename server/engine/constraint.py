"""Replies held to a form: which tokens may come next so that the text stays JSON of a schema.

llguidance (https://github.com/guidance-ai/llguidance) knows, byte for byte, what may follow; here
it becomes a mask over a row of logits. The mask depends on the schema and the reply's tokens and
on nothing else, so a run that goes on after a crash is held to the same place by replaying its
ids, and a draft is checked like any other token.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from hobnob.server.engine import form_grammar
from hobnob.server.engine.form_grammar import FormError
from hobnob.server.engine.ranking import Row

REMEMBERED = 16  # compiled forms; programs ask with the same one again and again


class Constraint:
    """Of one run."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def complete(self) -> bool:
        """The form is filled and nothing more may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def masked(self, row: Row) -> Row:
        """A copy with minus infinity for tokens that may not come next. Raises FormError."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise FormError("the reply can no longer be held to its form")
        allowed = np.unpackbits(bits, count=row.size, bitorder="little").view(np.bool_)
        return np.where(allowed, row, np.float32(-math.inf))

    def accept(self, token: int) -> None:
        """The token is part of the reply now."""
        self._matcher.consume_token(token)


class Constraints:
    """Makes them for one vocabulary, which is read when the first one is asked for."""

    def __init__(
        self,
        n_vocab: int,
        eog: Sequence[int],
        spelled: Callable[[int], bytes],
        is_control: Callable[[int], bool],
        tokenize: Callable[[str], list[int]],
    ) -> None:
        """`spelled`: a token's bytes, also of control tokens. `tokenize`: of a text that goes on
        from other text; where only one text can follow, its tokens are the ones that may."""
        self._n_vocab = n_vocab
        self._eog = list(eog)
        self._spelled = spelled
        self._is_control = is_control
        self._tokenize = tokenize
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def of(self, response_format: Mapping[str, Any], emitted: Sequence[int]) -> Constraint:
        """For a reply that has these tokens already. Raises FormError."""
        if not self._eog:
            raise FormError("The model has no token that ends a reply: none can be held to a form.")
        matcher = self._matcher(form_grammar.grammar(response_format))
        if emitted and not matcher.consume_tokens(list(emitted)):
            raise FormError("What there is of the reply does not fit its form.")
        return Constraint(matcher)

    def _matcher(self, grammar: str) -> LLMatcher:
        known = self._compiled.get(grammar)
        if known is None:
            known = LLMatcher(self._tokenizer, grammar, log_level=0, limits=form_grammar.limits())
            tried = known.deep_copy()
            tried.compute_bitmask()  # what refers to itself alone compiles, and begins with nothing
            if tried.is_error():
                raise form_grammar.failure(tried.get_error())
            self._compiled[grammar] = known
            if len(self._compiled) > REMEMBERED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return known.deep_copy()

    @functools.cached_property
    def _tokenizer(self) -> LLTokenizer:
        ids = range(self._n_vocab)
        vocabulary = _Vocabulary(
            tokens=[self._spelled(id) for id in ids],
            eos_token_id=self._eog[0],
            special_token_ids=[id for id in ids if self._is_control(id)],
            tokenize=self._tokenize,
        )
        wrapped = TokenizerWrapper(vocabulary)
        return LLTokenizer(wrapped, n_vocab=self._n_vocab, eos_token=self._eog)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """As llguidance's TokenizerWrapper asks for it."""

    tokens: list[bytes]
    eos_token_id: int
    special_token_ids: list[int]
    tokenize: Callable[[str], list[int]]
    bos_token_id: int | None = None

    def __call__(self, text: str) -> list[int]:
        return self.tokenize(text)
