"""One run's reply while it grows: sampler, text, limits, timings. The step thread's.

It knows neither cells nor steps: it is told when things happened and what logits came, and
answers with `Output`s. A continued run replays the ids of its earlier lives first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hobnob.server.engine.breakers import NONE, Breakers
from hobnob.server.engine.detokenize import Detokenizer
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.protocol import Finish, Logprob, Output, Submit
from hobnob.server.engine.ranking import Row
from hobnob.server.engine.run import Run
from hobnob.server.engine.sampling import Drawn, Sampler
from hobnob.server.wire import StopReason

if TYPE_CHECKING:
    from hobnob.server.engine.constraint import Constraint

Piece = Callable[[int], bytes]


def joined(outputs: Sequence[Output]) -> Output:
    """Outputs of one run in order as one."""
    if len(outputs) == 1:
        return outputs[0]
    return Output(
        outputs[0].run,
        [token for output in outputs for token in output.tokens],
        "".join(output.text for output in outputs),
        outputs[0].replayed,
        [one for output in outputs for one in output.logprobs],
    )


class Generation:
    def __init__(
        self,
        submit: Submit,
        *,
        piece: Piece,
        spelled: Piece,
        breakers: Callable[[Sequence[str]], Breakers],
        constraint: Constraint | None = None,
        eog: Sequence[int],
        n_ctx: int,
        now: float,
    ) -> None:
        """`piece`: a token's bytes in the text; `spelled`: also those of control tokens."""
        tokens = [*submit.prompt, *submit.emitted]
        self.run = Run(
            id=submit.run,
            tokens=tokens,
            n_prompt=len(submit.prompt),
            owner=submit.owner,
            group=submit.group,
            interactive=submit.interactive,
            exact=submit.exact,
            warm=submit.warm,
            arrived=now,
        )
        self._sampling = submit.sampling
        self._eog = frozenset(eog)
        self._n_ctx = n_ctx
        self._spelled = spelled
        banned = eog if submit.sampling.ignore_eos else ()
        dry = submit.sampling.dry_multiplier != 0.0
        found = breakers(submit.sampling.dry_sequence_breakers) if dry else NONE
        self._constraint = constraint
        self._sampler = Sampler(submit.sampling, tokens, banned, found, constraint)
        self._text = Detokenizer(piece, submit.sampling.stop)
        self._count = 0  # tokens of the reply so far, earlier lives included
        self._replayed: str | None = self._replay(submit.emitted) if submit.emitted else None
        self._before = self._count  # of these, the ones of earlier lives
        self._arrived = self._admitted = self._prefilled = self._first = self._last = now
        self._gaps: list[float] = []
        self._was_admitted = self._drew = False
        self._drafted = self._accepted = 0
        self.drafter = Drafter(self.run.tokens, self.run.n_prompt, submit.owner, submit.group)

    def over(self) -> str | None:
        """A reason why nothing more is to be generated, known without a step."""
        if self._text.finished is not None:
            return StopReason.STOP_STRING
        if self._constraint is not None and self._constraint.complete:
            return StopReason.END_TURN
        if 0 < self._sampling.max_tokens <= self._count:
            return StopReason.MAX_TOKENS
        if len(self.run.tokens) >= self._n_ctx:
            return StopReason.CONTEXT
        return None

    def admitted(self, now: float) -> None:
        """The run got a sequence; only the first time counts."""
        if not self._was_admitted:
            self._admitted = self._prefilled = now
        self._was_admitted = True

    def prefilled(self, now: float) -> None:
        """The logits for its next token are there."""
        if not self._drew:
            self._prefilled = now
            self.drafter.prefilled(now - self._admitted)

    def draw(self, row: Row) -> Drawn:
        """The next token. Raises sampling.BadLogits and form_grammar.FormError."""
        return self._sampler.draw(row, self._count)

    @property
    def room(self) -> int:
        """Tokens that the reply may still grow by."""
        room = self._n_ctx - len(self.run.tokens)
        most = self._sampling.max_tokens
        return min(room, most - self._count) if most else room

    def accept(self, drawn: Drawn) -> tuple[Output, str | None]:
        """Takes the token into the reply; the reason when the reply ends with it."""
        if drawn.token in self._eog and not self._sampling.ignore_eos:
            return self._output(), StopReason.END_TURN
        self._sampler.accept(drawn.token)
        self._count += 1
        self.run.take([drawn.token])
        text = self._text.push(drawn.token)
        logprobs = [] if drawn.logprob is None else [self._logprob(drawn, drawn.logprob)]
        return self._output([drawn.token], text, logprobs), self.over()

    def spoke(self, draws: int, now: float) -> None:
        """So many draws came of a step: each took its share of the time since the last."""
        if not self._drew:
            self._first = self._last = now
            self._drew = True
            draws -= 1
        self._gaps += [(now - self._last) / draws] * draws if draws else []
        self._last = now

    def guessed(self, drafted: int, accepted: int) -> None:
        """So many of the rows of a step were drafts, and so many of these were drawn."""
        self._drafted += drafted
        self._accepted += accepted

    def finish(
        self, reason: str, output: Output | None = None, *, code: str | None = None, error: str = ""
    ) -> Output:
        """The last output: `output`, what was held back, and why the reply ends."""
        given = output or self._output()
        finish = Finish(
            reason=reason,
            stop_string=self._text.finished if reason == StopReason.STOP_STRING else None,
            error_code=code,
            error=error or None,
            prompt_tokens=self.run.n_prompt,
            cached_tokens=self.run.cached,
            completion_tokens=self._count,
            drafted=self._drafted,
            accepted=self._accepted,
            decoded=self._count - self._before,
            **self._timings(),
        )
        return Output(
            given.run,
            given.tokens,
            given.text + self._text.flush(),
            given.replayed,
            given.logprobs,
            finish,
        )

    def _output(
        self, tokens: list[int] | None = None, text: str = "", logprobs: list[Logprob] | None = None
    ) -> Output:
        replayed, self._replayed = self._replayed, None
        return Output(self.run.id, tokens or [], text, replayed, logprobs or [])

    def _replay(self, emitted: list[int]) -> str:
        shown = []
        for token in emitted:
            self._count += 1
            shown.append(self._text.push(token))
            if self._text.finished is not None:
                break
        return "".join(shown)

    def _timings(self) -> dict[str, float]:
        gaps = np.array(self._gaps) if self._gaps else np.zeros(1)
        p50, p99 = np.percentile(gaps, (50, 99))
        return {
            "queued_s": self._admitted - self._arrived,
            "prefill_s": self._prefilled - self._admitted,
            "first_decode_s": max(0.0, self._first - self._prefilled) if self._drew else 0.0,
            "decode_s": self._last - self._first,
            "token_p50_s": float(p50),
            "token_p99_s": float(p99),
            "token_max_s": float(gaps.max()),
        }

    def _logprob(self, drawn: Drawn, logprob: float) -> Logprob:
        top = [(id, self._spelled(id), value) for id, value in drawn.top]
        return Logprob(drawn.token, self._spelled(drawn.token), logprob, top)
