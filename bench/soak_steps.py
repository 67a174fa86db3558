"""A soak of the engine's steps: random histories on the real model, checked after every step.

Requests come and are cancelled, share beginnings, go on from earlier lives, draft well and badly,
are put aside, saved to memory and to files, brought back and forgotten, in fewer cells than they
need. After each step everything must add up (Steps.check_integrity), every run must end once, and
an exact reply must be the one that the same request had before.

    python -m bench.soak_steps [--steps 20000] [--seed N]

Prints memory as it goes. Exits 1 with the last commands when something does not add up. Clock and
disk are real, so a seed repeats the commands, not every step.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import machine
from bench.texts import Texts, starter_model
from hobnob.server.engine import loading
from hobnob.server.engine.drafter import Drafter
from hobnob.server.engine.protocol import Configure, Lookup, Sampling, Stepped, Submit
from hobnob.server.wire import StopReason
from tests.support.engine_history import Guesses, Said, put_newest_aside

WINDOW_TOKENS = 192
CELLS = 512
"""Fewer than half of what eight windows hold."""
RUNNING = 8
RAM_MIB, DISK_TIMES = 24.0, 3
"""Small budgets: with the starter model both are full before a quarter of the steps."""

HEADS, TAILS, SEEDS = 3, 5, 2
"""Few: requests are often equal, and begin alike."""
GROUPS = 12
"""Conversations at a time; a new one comes in the place of each that is deleted."""
OWNERS = ["ann", "bob"]
CROWDS = (0, 1, 1, 1, 1, 2, 2, 3, 10)
"""How many are wanted at a time; now none, so that everything comes to rest, now too many."""
CROWD_STEPS = 60
LEAVING = 0.08
"""Chance that one of too many is cancelled before a step."""
COMMANDS = {
    "": 68,
    "submit": 24,
    "cancel": 1.5,
    "put-aside": 3,
    "look": 1.5,
    "warm": 0.5,
    "forget": 0.5,
}
"""Before a step, in hundredths."""
DRAFT_TOKENS = 5
REMEMBERED = 256
"""Exact replies that are known, to be said again."""
SHOWN_COMMANDS = 40
STUCK_STEPS = 1000
WAIT_SECONDS = 0.05

REASONS = {
    StopReason.END_TURN,
    StopReason.MAX_TOKENS,
    StopReason.STOP_STRING,
    StopReason.CONTEXT,
    StopReason.CANCELLED,
    "warmed",
}

Key = tuple[tuple[int, ...], int, float]
"""What an exact reply depends on: prompt, seed, temperature."""


@dataclass(slots=True)
class Asked:
    submit: Submit
    bad: bool = False
    known: int = 0
    """Tokens of an exact reply that an equal request has said before."""

    @property
    def key(self) -> Key:
        sampling = self.submit.sampling
        return tuple(self.submit.prompt), sampling.seed, sampling.temperature


class Soak:
    def __init__(
        self, model: Path, folder: Path, seed: int, *, threads: int = 1, ram_mib: float = RAM_MIB
    ) -> None:
        ram_bytes = int(ram_mib * 2**20)
        self._chance = random.Random(seed)
        self._frames: list[Stepped] = []
        self._news = threading.Event()
        configure = Configure(
            str(model),
            n_ctx=WINDOW_TOKENS,
            n_cells=CELLS,
            n_seq_max=RUNNING,
            n_threads=threads,
            n_gpu_layers=0,
            speculation="auto",
            snapshot_folder=str(folder),
            snapshot_disk_bytes=DISK_TIMES * ram_bytes,
            snapshot_ram_bytes=ram_bytes,
        )
        self._engine, self._ready = loading.load(
            configure, self._frames.append, lambda _: None, self._news.set
        )
        texts = Texts(model)
        plain = texts.tokens("The old bridge by the green river was repaired in early winter.")
        self._heads = [texts.tokens(texts.prose(3 + 12 * n, n)) for n in range(HEADS)]
        self._tails = [texts.tokens(texts.prose(2 + n, 100 + n)) for n in range(TAILS)]
        guesses = Guesses(self._engine._pace, [texts.eos], self._foretell, plain, self._chance)
        self._engine._speculation = self._engine._news._speculation = guesses
        self._said = Said()
        self._live: dict[str, Asked] = {}
        self._known: OrderedDict[Key, list[int]] = OrderedDict()
        self._groups = [f"c{n}" for n in range(GROUPS)]
        self._turns: dict[
            str, list[int]
        ] = {}  # of a conversation: prompt and reply of its last run
        self._crowd = 1
        self._count = 0
        self.commands: deque[str] = deque(maxlen=SHOWN_COMMANDS)
        self.counts: Counter[str] = Counter()
        self.compared = 0
        """Tokens of exact replies, each with what an equal request had said before."""

    @property
    def steps(self) -> int:
        return self._engine.stats().steps

    @property
    def told(self) -> str:
        """What the engine counted so far."""
        now = self._engine.stats()
        return (
            f"cells {now.cells_used}/{now.cells_total}, {now.evicted_cells} evicted, "
            f"{now.moved_cells} moved; {now.saved} stretches saved, {now.restored} put back; "
            f"{now.restored_tokens} tokens from snapshots, "
            f"{now.snapshot_ram_bytes / 2**20:.1f} MiB in RAM, "
            f"{now.snapshot_disk_bytes / 2**20:.1f} of {now.snapshot_written_bytes / 2**20:.1f} "
            f"MiB written; "
            f"{now.accepted} of {now.drafted} drafted tokens accepted; "
            f"{self.compared} tokens compared"
        )

    def step(self) -> None:
        """Some commands, and one step, which may find nothing to compute."""
        if self._chance.random() < 1 / CROWD_STEPS:
            self._crowd = self._chance.choice(CROWDS)
        self._command()
        self._advance()

    def finish(self) -> None:
        """Nobody comes any more; everything is given back."""
        self._rest()
        stats = self._engine.stats()
        assert stats.running == stats.waiting == stats.saved_bytes == 0
        assert stats.cells_used == stats.cells_cached, "cells are held for nobody"
        self._engine.close()

    # ---- commands -----------------------------------------------------------------------------

    def _command(self) -> None:
        if self._crowd == 0:
            self._rest()
            self._crowd = self._chance.choice(CROWDS[1:])
        elif len(self._live) > self._crowd and self._chance.random() < LEAVING:
            self._cancel(self._chance.choice(list(self._live)))
        match self._chance.choices(list(COMMANDS), list(COMMANDS.values()))[0]:
            case "submit" if len(self._live) < self._crowd:
                self._submit(self._made())
            case "warm" if not self._live:
                self._submit(self._made(warm=True))
            case "cancel" if self._live:
                self._cancel(self._chance.choice(list(self._live)))
            case "put-aside":
                self._do("put-aside")
                put_newest_aside(self._engine)
            case "forget":
                self._forget(self._chance.randrange(GROUPS))
            case "look":
                self._look()
            case _:
                pass

    def _do(self, what: str) -> None:
        self.counts[what.partition(" ")[0]] += 1
        self.commands.append(f"step {self.steps}: {what}")

    def _made(self, *, warm: bool = False) -> Asked:
        chance = self._chance
        self._count += 1
        group = chance.choice(["", *self._groups])
        if group in self._turns and chance.random() < 0.4:
            prompt = [*self._turns[group], *chance.choice(self._tails)]  # the next turn
        else:
            prompt = [*chance.choice(self._heads), *chance.choice(self._tails)]
        bad = chance.random() < 0.01
        if bad:
            prompt = chance.choice([[], [*prompt, -1], prompt * WINDOW_TOKENS])
        sampling = Sampling(
            seed=chance.randrange(SEEDS),
            temperature=chance.choice([0.0, 0.8]),
            max_tokens=chance.choice([1, 8, 24, 60, 150]),
            ignore_eos=True,
            logprobs=chance.choice([-1, -1, -1, 2]),
        )
        submit = Submit(
            f"r{self._count}",
            prompt[: None if bad else WINDOW_TOKENS - 1],
            sampling,
            owner=chance.choice(OWNERS),
            interactive=chance.random() < 0.7,
            exact=chance.random() < 0.6,
            warm=warm,
            group=group,
        )
        asked = Asked(submit, bad)
        known = self._known.get(asked.key)
        if known and submit.exact and not bad and chance.random() < 0.3:  # its second life
            most = min(len(known), sampling.max_tokens)
            submit = msgspec.structs.replace(submit, emitted=known[: chance.randrange(most)])
        return Asked(submit, bad, len(known or []) if submit.exact else 0)

    def _submit(self, asked: Asked) -> None:
        one = asked.submit
        kind = "warm" if one.warm else "bad" if asked.bad else "exact" if one.exact else "run"
        self._do(
            f"{kind} {one.run} of {one.owner} in {one.group!r}: {len(one.prompt)} tokens"
            f" + {len(one.emitted)}, up to {one.sampling.max_tokens}"
        )
        self._live[one.run] = asked
        self._engine.submit(one)

    def _cancel(self, run: str) -> None:
        self._do(f"cancel {run}")
        self._engine.cancel(run)

    def _forget(self, n: int) -> None:
        """As the server does it: a deleted conversation's runs are cancelled first."""
        group = self._groups[n]
        self._do(f"forget {group}")
        self._groups[n] = f"c{GROUPS + self.counts['forget']}"
        for run in [run for run, asked in self._live.items() if asked.submit.group == group]:
            self._engine.cancel(run)
        self._turns.pop(group, None)
        self._engine.forget(group)

    def _look(self) -> None:
        prompt = [*self._chance.choice(self._heads), *self._chance.choice(self._tails)]
        exact = self._chance.random() < 0.5
        self._do("look")
        found = self._engine.resident(Lookup(1, self._chance.choice(OWNERS), prompt, exact))
        assert 0 <= found < len(prompt)

    def _rest(self) -> None:
        """Everybody is answered, and what is done with nothing else to do is done."""
        self._do("rest")
        while not self._engine.idle:
            self._advance()
        while self._engine.tidy():
            self._engine.check_integrity()
        self._engine.check_integrity()

    # ---- what comes of them -------------------------------------------------------------------

    def _advance(self) -> None:
        for _ in range(STUCK_STEPS):
            computed = self._engine.step()
            self._engine.check_integrity()
            self._take()
            if computed or self._engine.idle:
                return
            if self._engine.fetching:
                self._news.wait(WAIT_SECONDS)
                self._news.clear()
        raise AssertionError("runs are waiting and none can be planned")

    def _take(self) -> None:
        frames = self._frames[:]
        self._frames.clear()
        self._said.take(frames)
        for run in {output.run for frame in frames for output in frame.outputs}:
            asked = self._live[run]
            said = [*asked.submit.emitted, *self._said.tokens[run]]
            if asked.submit.exact and not asked.bad and self._ready.exact_rows:
                self._compare(asked.key, said)
            if self._said.finishes[run]:
                self._ended(run, asked, said)

    def _compare(self, key: Key, said: list[int]) -> None:
        """An exact reply begins as the same one did before, or goes on from there."""
        known = self._known.setdefault(key, [])
        self._known.move_to_end(key)
        n = min(len(known), len(said))
        assert known[:n] == said[:n], f"an exact reply is another one: {known} was {said}"
        if len(said) > len(known):
            self._known[key] = said
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _ended(self, run: str, asked: Asked, said: list[int]) -> None:
        (finish,) = self._said.finishes[run]
        submit = asked.submit
        cancelled = finish.reason == StopReason.CANCELLED
        if submit.warm:
            assert finish.reason == "warmed" or cancelled
        elif asked.bad:
            assert finish.reason == StopReason.ERROR, finish
        else:
            assert finish.reason in REASONS, finish
            assert finish.completion_tokens == len(said), "tokens are miscounted"
            if finish.reason == StopReason.MAX_TOKENS:
                assert len(said) == submit.sampling.max_tokens
            if finish.reason == StopReason.CONTEXT:
                assert len(submit.prompt) + len(said) == WINDOW_TOKENS
        if submit.group and not (asked.bad or cancelled or submit.warm):
            self._turns[submit.group] = [*submit.prompt, *said]
            if len(self._turns[submit.group]) > WINDOW_TOKENS // 2:
                del self._turns[submit.group]
        self.counts[f"ended ({finish.reason})"] += 1
        self.compared += max(0, min(asked.known, len(said)) - len(submit.emitted))
        del self._live[run]
        self._said.drop(run)

    def _foretell(self, drafter: Drafter, n: int) -> list[int]:
        """Mostly nothing; else what the same exact request said before, or what can be looked
        up."""
        n = min(n, DRAFT_TOKENS)
        if self._chance.random() < 0.7:
            return []
        prompt = tuple(drafter.tokens[: drafter.n_prompt])
        for key, known in self._known.items():
            if key[0] == prompt:
                return known[len(drafter.tokens) - drafter.n_prompt :][:n]
        drafter.read()
        return drafter.draft(n)


def growth(samples: Sequence[tuple[int, int]]) -> str:
    """Of resident bytes, after a quarter of the steps and from there on."""
    last, after = samples[-1]
    quarter = min(range(len(samples)), key=lambda n: abs(samples[n][0] - last / 4))
    before = samples[quarter][1]
    highest = max(resident for _, resident in samples[quarter:])
    return (
        f"resident after a quarter {before / 2**20:.1f} MiB, at the end {after / 2**20:.1f} MiB "
        f"({after / before - 1:+.1%}), at most {highest / 2**20:.1f} MiB"
    )


def run(soak: Soak, steps: int, seconds: float) -> list[tuple[int, int]]:
    """Steps and resident bytes, as time went on."""
    began = time.monotonic()
    every = max(1, steps // 40)
    samples: list[tuple[int, int]] = []
    while (done := soak.steps) < steps and time.monotonic() - began < seconds:
        soak.step()
        if soak.steps // every > done // every:
            samples.append((soak.steps, machine.resident_bytes(os.getpid())))
            say(
                f"{soak.steps:7} steps, {time.monotonic() - began:5.0f} s, "
                f"{samples[-1][1] / 2**20:7.1f} MiB resident; {soak.told}"
            )
    soak.finish()
    samples.append((soak.steps, machine.resident_bytes(os.getpid())))
    return samples


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak_steps")
    parser.add_argument("--steps", type=int, default=20_000, metavar="N")
    parser.add_argument("--seconds", type=float, default=3600.0, metavar="S", help="at the most")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument(
        "--ram-mib", type=float, default=RAM_MIB, metavar="M", help="for snapshots; files: 3 times"
    )
    parser.add_argument("--model", type=Path, help="a GGUF file (the starter model)")
    given = parser.parse_args()
    say(f"seed {given.seed}, {given.threads} thread(s); {machine.describe()}")
    with tempfile.TemporaryDirectory(prefix="hobnob-soak-") as folder:
        soak = Soak(
            given.model or starter_model(),
            Path(folder),
            given.seed,
            threads=given.threads,
            ram_mib=given.ram_mib,
        )
        try:
            samples = run(soak, given.steps, given.seconds)
        except Exception:
            say("\n".join(soak.commands))
            say(f"{traceback.format_exc()}\nBROKEN at step {soak.steps} of seed {given.seed}")
            return 1
    say(", ".join(f"{n} × {what}" for what, n in sorted(soak.counts.items())))
    say(f"{samples[-1][0]} steps, everything added up after each; {growth(samples)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
