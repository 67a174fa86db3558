"""At the edge of the window, token by token: what fits is answered, the rest is refused, always.

A prompt fits where one token more does. A real context, cold and with the prefix in its cells.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hobnob.server.engine import loading
from hobnob.server.engine.llama import Vocab
from hobnob.server.engine.protocol import Configure, Finish, Sampling, Stepped, Submit
from hobnob.server.engine.steps import Steps
from hobnob.server.wire import StopReason

N_CTX = 256
STEPS_MAX = 100
Ended = tuple[list[int], Finish]


class Engine:
    """All of the engine but its process."""

    def __init__(self, model: Path) -> None:
        self._frames: list[Stepped] = []
        asked = Configure(str(model), n_ctx=N_CTX, n_cells=2 * N_CTX, n_seq_max=2, n_threads=1)
        self.steps: Steps
        self.steps, ready = loading.load(asked, self._frames.append, lambda _: None, lambda: None)
        assert ready.n_ctx == N_CTX

    def replies(self, *prompts: list[int], max_tokens: int = 1) -> list[Ended]:
        """Asked for at once; what each said and how it ended, within so many steps."""
        self._frames.clear()
        for n, prompt in enumerate(prompts):
            sampling = Sampling(seed=1, temperature=0, max_tokens=max_tokens, ignore_eos=True)
            self.steps.submit(Submit(f"r{n}", prompt, sampling, exact=True))
        for _ in range(STEPS_MAX):
            self.steps.step()
            self.steps.check_integrity()
            if self.steps.idle:
                break
        assert self.steps.idle, "somebody waits for room that will never be there"
        outputs = [output for frame in self._frames for output in frame.outputs]
        ended = []
        for n in range(len(prompts)):
            mine = [output for output in outputs if output.run == f"r{n}"]
            (finish,) = [output.finish for output in mine if output.finish is not None]
            ended.append(([token for output in mine for token in output.tokens], finish))
        return ended


@pytest.fixture(scope="module")
def text(tiny: Path) -> list[int]:
    vocab = Vocab.open(tiny)
    text = vocab.tokenize("".join(f"Boat {n} came in before noon. " for n in range(60)))
    vocab.close()
    return text


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Engine:
    return Engine(tiny)


@pytest.mark.parametrize("length", [N_CTX - 2, N_CTX - 1])
@pytest.mark.parametrize("together", [1, 2])
def test_a_prompt_that_leaves_room_for_one_token_gets_it_cold_and_cached(
    engine: Engine, text: list[int], length: int, together: int
) -> None:
    own = 200 + 4 * together + 2 * (length % 2)  # no prompt begins as another: it is cold
    prompts = [[own + n, *text][:length] for n in range(together)]
    cold = engine.replies(*prompts)
    for tokens, finish in cold:
        assert len(tokens) == 1
        assert (finish.reason, finish.prompt_tokens) == (StopReason.MAX_TOKENS, length)
    for _ in range(2):
        cached = engine.replies(*prompts)
        assert [tokens for tokens, _ in cached] == [tokens for tokens, _ in cold]
        assert [finish.reason for _, finish in cached] == [StopReason.MAX_TOKENS] * together
        assert max(finish.cached_tokens for _, finish in cached) >= length - 2


@pytest.mark.parametrize("length", [N_CTX, N_CTX + 1])
@pytest.mark.parametrize("together", [1, 2])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers_cold_and_cached(
    engine: Engine, text: list[int], length: int, together: int
) -> None:
    for _ in range(2):
        for tokens, finish in engine.replies(*[text[:length]] * together):
            assert not tokens
            assert finish.error_code == "context_length_exceeded"
            assert finish.error is not None
            assert str(length) in finish.error and str(N_CTX) in finish.error
        engine.replies(text[: N_CTX - 1])  # its prefix is in the cells from now on


def test_a_reply_that_asks_for_more_than_the_window_holds_fills_it_to_its_last_token(
    engine: Engine, text: list[int]
) -> None:
    for _ in range(2):
        for tokens, finish in engine.replies(
            text[: N_CTX - 3], text[7:][: N_CTX - 3], max_tokens=9
        ):
            assert len(tokens) == 3
            assert finish.reason == StopReason.CONTEXT
