"""Rounds in which the real program is struck in mid-reply, and what became of each.

A round asks one question (or two), strikes once as its seed says, at random or at a named point of
the program (points/), and compares what was printed and stored with what a server that nobody
strikes says to the same question.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from striking import Printing, StruckHome
from support_e2e import wait_for

TOKENS = 80
OPTIONS = {"max_tokens": str(TOKENS), "ignore_eos": "true", "exact": "true"}
STRUCK_BYTES = 130
"""Of the reply at the most when it is struck: with its prompt it has fewer than 100 tokens."""
STOPPED_SECONDS = 1.0
IN_FLIGHT_SECONDS = 0.05
"""What was drawn before the engine died is shown within this time; no engine starts so fast."""

STORY = "The old lighthouse keeper counted the ships that passed in the night and wrote down each"
QUESTIONS = (
    "Count upwards from {n}, in words.",
    "Tell me about the number {n}.",
    "Write a story about {n} foxes 🦊.",
    "Write JSON with {n} as the first value.",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one round."""

    victim: str
    way: str
    seed: int
    complete: bool = False
    kept: bool = False  # all that was printed is how the stored reply begins, in one piece
    equal: bool = False  # to the uninterrupted reply
    once: bool = False  # one row for the question, one for the reply
    gap_s: float | None = None  # from the death to the next text
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.complete and self.kept and self.equal and self.once and not self.trouble


class Round:
    """One question, struck as the seed says."""

    def __init__(self, homes: Homes, victim: str, seed: int) -> None:
        self._homes = homes
        self._victim = victim
        self._seed = seed
        self._dice = random.Random(f"{victim} {seed}")
        self._gap_s: float | None = None
        self._home = homes.wide
        self._newest = 0
        self._way = "none"

    def run(self) -> Outcome:
        ways = WAYS[self._victim]
        name, strike = ways[self._seed % len(ways)]
        self._way = name
        self._home = self._homes.narrow if name.startswith("in the queue") else self._homes.wide
        if self._victim == "migration":
            self._home = self._homes.fresh(self._seed)
        self._newest = self._home.newest()
        try:
            return strike(self)
        except Exception as error:
            self._home.spare()
            return Outcome(
                self._victim, name, self._seed, trouble=f"{type(error).__name__}: {error}"
            )

    # ---- the engine

    def engine_at_random(self, number: signal.Signals) -> Outcome:
        question, asking = self._ask()
        asking.wait_for_bytes(self._some_bytes())
        return self._over(question, asking, self._kill("engine", number))

    def engine_stopped(self) -> Outcome:
        question, asking = self._ask()
        asking.wait_for_bytes(self._some_bytes())
        pid = self._home.pid_of("engine")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.kill(pid, signal.SIGCONT)
        return self._over(question, asking, None)

    def in_prefill(self) -> Outcome:
        long = f"{self._seed}: {STORY * 12}. Go on."
        self._home.doom(
            "prefill", self._fatal(), passes=self._dice.randint(0, 1), delay_s=self._up_to(0.3)
        )
        question, asking = self._ask(long)
        self._await_doom()
        return self._over(question, asking, None)

    def in_decode(self) -> Outcome:
        question, asking = self._ask()
        asking.wait_for_bytes(1)
        passes = self._dice.randint(0, 25)
        self._home.doom("decode", self._fatal(), passes=passes, delay_s=self._up_to(0.02))
        return self._over(question, asking, self._await_doom())

    def in_snapshot(self) -> Outcome:
        """A short reply ends and is being saved when the engine dies under another one."""
        question, asking = self._ask()
        asking.wait_for_bytes(1)
        self._home.doom("snapshot", self._fatal(), delay_s=self._up_to(0.004))
        short = self._home.ask(f"Say hello to {self._seed}.", "-o", "max_tokens", "2")
        died_at = self._await_doom()
        short.finish()
        return self._over(question, asking, died_at, asked=2)

    def in_load(self) -> Outcome:
        """Its successor dies too."""
        question, asking = self._ask()
        asking.wait_for_bytes(self._some_bytes())
        self._home.doom("load", self._fatal(), delay_s=self._up_to(0.6))
        self._kill("engine", signal.SIGKILL)
        self._await_doom()
        return self._over(question, asking, None)

    # ---- the server

    def server_at_random(self, number: signal.Signals) -> Outcome:
        question, asking = self._ask()
        asking.wait_for_bytes(self._some_bytes())
        died_at = self._kill("server", number)
        if number is signal.SIGTERM:  # the client waits for somebody else to start it
            wait_for(lambda: not self._home.api("/health"))
            self._home.run("history", "list")
        return self._over(question, asking, died_at)

    def server_at(self, point: str, passes: int, delay_s: float) -> Outcome:
        if point == "accepted":
            self._home.run("history", "list")  # starts it, where this is the first round
            self._home.doom(point, signal.SIGKILL)
            question, asking = self._ask()
        else:
            question, asking = self._ask()
            asking.wait_for_bytes(1)
            passes, delay_s = self._dice.randint(0, passes), self._up_to(delay_s)
            self._home.doom(point, signal.SIGKILL, passes=passes, delay_s=delay_s)
        return self._over(question, asking, self._await_doom())

    def in_migration(self) -> Outcome:
        """At the very first start."""
        self._home.doom("migration", signal.SIGKILL, delay_s=self._up_to(0.01))
        try:
            question, asking = self._ask()
            died_at = self._await_doom()
            printed, complaints = asking.finish()
            if not printed:  # the start failed, and said so; whoever asks again succeeds
                assert "server did not start" in complaints.lower(), complaints
                question, asking = self._ask()
            return self._over(question, asking, died_at)
        finally:
            self._home.stop()

    # ---- both

    def in_queue(self, victim: str) -> Outcome:
        """One reply at a time: the second waits when it happens, and both come."""
        first, asking = self._ask(f"Count from {self._seed}.")
        asking.wait_for_bytes(1)
        second, waiting = self._ask()
        wait_for(lambda: self._home.api("/status").get("sequences", {}).get("waiting"))
        time.sleep(self._up_to(0.2))
        self._kill(victim, signal.SIGKILL)
        one = self._over(first, asking, None, asked=2)
        return self._over(second, waiting, None, asked=2) if one.good else one

    # ---- the client

    def client_at_random(self, number: signal.Signals) -> Outcome:
        question, asking = self._ask()
        asking.wait_for_bytes(self._some_bytes())
        os.kill(asking.process.pid, number)
        return self._without_client(question, asking)

    def client_while_it_asks(self) -> Outcome:
        """Perhaps before its question is sent: then there is none."""
        question, asking = self._ask()
        time.sleep(self._up_to(1.5))
        asking.process.kill()
        shown, _ = asking.finish()
        time.sleep(0.3)  # a request under way is taken or not by now
        if not list(self._home.stored(self._newest)) and not shown:
            return Outcome(self._victim, self._way, self._seed, True, True, True, True)
        return self._without_client(question, asking)

    def _without_client(self, question: str, asking: Printing) -> Outcome:
        """It comes back when the reply is complete, and prints the rest."""
        shown, _ = asking.finish()
        (stored,) = self._home.stored(self._newest)
        wait_for(lambda: self._home.api(f"/runs/{stored.run}").get("status") == "length" or None)
        again = self._home.run("ask", "--resume", stored.run, "--printed", str(len(shown)))
        assert again.returncode == 0, again.stderr.decode()
        return self._judged(question, shown + again.stdout, None, asked=1)

    # ---- pieces

    def _ask(self, question: str | None = None) -> tuple[str, Printing]:
        text = question or self._dice.choice(QUESTIONS).format(n=1000 + self._seed)
        return text, self._home.ask(text, *self._options())

    def _options(self) -> list[str]:
        drawn = {"temperature": "0.8", "seed": str(self._seed)}
        chosen = {**OPTIONS, **(drawn if self._seed % 2 else {"temperature": "0"})}
        return [word for item in chosen.items() for word in ("-o", *item)]

    def _some_bytes(self) -> int:
        return self._dice.randint(1, STRUCK_BYTES)

    def _fatal(self) -> signal.Signals:
        return self._dice.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])

    def _up_to(self, seconds: float) -> float:
        return self._dice.uniform(0.0, seconds)

    def _kill(self, victim: str, number: signal.Signals) -> float:
        pid = self._home.pid_of(victim)
        os.kill(pid, number)
        return time.monotonic()

    def _await_doom(self) -> float:
        return wait_for(self._home.died_at, 30.0)

    def _over(
        self, question: str, asking: Printing, died_at: float | None, *, asked: int = 1
    ) -> Outcome:
        printed, complaints = asking.finish()
        assert asking.process.returncode == 0, complaints
        if died_at is not None:
            next_at = asking.first_after(died_at + IN_FLIGHT_SECONDS)
            self._gap_s = None if next_at is None else next_at - died_at
        return self._judged(question, printed, self._gap_s, asked=asked)

    def _judged(self, question: str, printed: bytes, gap_s: float | None, *, asked: int) -> Outcome:
        expected = self._homes.expected(question, self._options())
        rows = list(self._home.stored(self._newest))
        ours = [row for row in rows if row.question == question]
        statuses, texts = zip(*ours[0].replies, strict=True) if ours else ((), ())
        kept = bool(texts) and texts[0].encode() == printed.removesuffix(b"\n")
        if texts and texts[0].endswith("\n"):  # then no line end is added
            kept = texts[0].encode() == printed
        equal = printed == expected
        return Outcome(
            self._victim,
            self._way,
            self._seed,
            complete=statuses == ("length",),
            kept=kept,
            equal=equal,
            once=len(rows) == asked and len(ours) == 1 and len(texts) == 1,
            gap_s=gap_s,
            trouble="" if equal else f"{printed!r} is not {expected!r}",
        )


Way = tuple[str, Callable[[Round], Outcome]]

ENGINE: list[Way] = [
    ("SIGKILL", lambda r: r.engine_at_random(signal.SIGKILL)),
    ("SIGTERM", lambda r: r.engine_at_random(signal.SIGTERM)),
    ("SIGSEGV", lambda r: r.engine_at_random(signal.SIGSEGV)),
    ("SIGSTOP, SIGCONT", Round.engine_stopped),
    ("in prefill", Round.in_prefill),
    ("in a decode", Round.in_decode),
    ("in a snapshot", Round.in_snapshot),
    ("in the load of the next", Round.in_load),
    ("in the queue, engine", lambda r: r.in_queue("engine")),
]
SERVER: list[Way] = [
    ("SIGKILL", lambda r: r.server_at_random(signal.SIGKILL)),
    ("SIGTERM", lambda r: r.server_at_random(signal.SIGTERM)),
    ("accepted, not answered", lambda r: r.server_at("accepted", 0, 0.0)),
    ("written, not committed", lambda r: r.server_at("written", 15, 0.0)),
    ("committed, not sent", lambda r: r.server_at("committed", 15, 0.0)),
    ("in a checkpoint", lambda r: r.server_at("checkpoint", 1, 0.003)),
    ("in the queue, server", lambda r: r.in_queue("server")),
]
CLIENT: list[Way] = [
    ("SIGKILL", lambda r: r.client_at_random(signal.SIGKILL)),
    ("SIGHUP", lambda r: r.client_at_random(signal.SIGHUP)),
    ("SIGKILL while it asks", Round.client_while_it_asks),
]
WAYS = {
    "engine": ENGINE,
    "server": SERVER,
    "client": CLIENT,
    "migration": [("in a migration", Round.in_migration)],
}


class Homes:
    """The servers that are struck, and the one that never is."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        """`threads`: of an engine, 0: it chooses; where others use the machine, one is steady."""
        self._folder = folder
        self._threads = threads
        self.wide = self._home("wide")
        self.narrow = self._home("narrow", "sequences = 1")
        self._spared = self._home("spared", "[snapshots]\ndisk_mb = 0")

    def fresh(self, seed: int) -> StruckHome:
        return self._home(f"fresh-{seed}")

    def _home(self, name: str, toml: str = "") -> StruckHome:
        home = StruckHome(self._folder / name, self._threads)
        home.configure(toml)
        return home

    def expected(self, question: str, options: list[str]) -> bytes:
        """What is printed when nothing happens."""
        asking = self._spared.ask(question, *options)
        printed, complaints = asking.finish()
        assert asking.process.returncode == 0, complaints
        return printed

    def stop(self) -> None:
        for home in (self.wide, self.narrow, self._spared):
            home.stop()
