"""What a message's state is called: the words of headers, status rows and footers. Pure."""

from __future__ import annotations

from hobnob.server.wire import Status, StopReason
from hobnob.tui.clean import clean
from hobnob.tui.transcript import Entry, Phase

SEPARATOR = " · "
LOADED = 0.995
"""From here on the file is read; what is left is the first run through it."""
SHORTEST_RATED_SECONDS = 0.1
"""A rate over less than this is noise and is not shown."""

_STOPS = {
    StopReason.END_TURN: "",
    StopReason.STOP_STRING: "ended at a stop string",
    StopReason.MAX_TOKENS: "cut at the token limit",
    StopReason.CONTEXT: "cut: the context window is full",
    StopReason.CANCELLED: "stopped",
    StopReason.REFUSED: "refused",
}


def called(title: str, found: bool) -> str:
    """What came of asking the model for a title."""
    return f"it is called {title}" if found else f"no name was found; it stays {title}"


def state(entry: Entry) -> str:
    """What a reply is waiting for; empty once its text says it all."""
    if entry.trouble:
        return clean(entry.trouble)
    if entry.phase is Phase.SENDING:
        return "sending…"
    if entry.phase is Phase.WAITING:
        return "waiting for the model…"
    if entry.phase is Phase.LOADING:
        done = entry.progress
        return f"loading the model… {done:.0%}" if done < LOADED else "warming the model up…"
    if entry.phase is Phase.QUEUED and entry.place is not None:
        return _queued(entry)
    if entry.phase is Phase.READING and entry.prefill is not None:
        return _reading(entry)
    return ""


def _queued(entry: Entry) -> str:
    assert entry.place is not None
    position, eta = entry.place.position, entry.place.eta_s
    place = "next in the queue" if position <= 1 else f"number {position} in the queue"
    return f"{place}{SEPARATOR}about {duration(eta)}" if eta else place


def _reading(entry: Entry) -> str:
    assert entry.prefill is not None
    done, total, cached = entry.prefill.done, entry.prefill.total, entry.prefill.cached
    words = f"reading the prompt… {count(done)} of {count(total)} tokens"
    return f"{words} ({count(cached)} cached)" if cached else words


def footer(entry: Entry) -> list[str]:
    """The facts about a finished reply."""
    facts: list[str] = []
    usage, timings = entry.usage, entry.timings
    if usage is not None and usage.prompt_tokens:
        cached = f" ({count(usage.cached_tokens)} cached)" if usage.cached_tokens else ""
        facts.append(f"{count(usage.prompt_tokens)} prompt tokens{cached}")
    if timings is not None and timings.first_token_s > 0:
        facts.append(f"first after {duration(timings.first_token_s)}")
    if usage is not None and usage.completion_tokens:
        at = rate(entry)
        facts.append(f"{count(usage.completion_tokens)} tokens{at and f' at {at}/s'}")
    if timings is not None and timings.drafted:
        facts.append(f"{count(timings.accepted)} of {count(timings.drafted)} guesses right")
    if words := stop(entry):
        facts.append(words)
    return facts


def stop(entry: Entry) -> str:
    """Why a reply ended before its natural end; empty for one that did not."""
    return _STOPS.get(entry.stop_reason or "", "")


def rate(entry: Entry) -> str:
    """Tokens a second after the first one; empty where that is not known or noise."""
    usage, timings = entry.usage, entry.timings
    if usage is None or timings is None or timings.decode_s < SHORTEST_RATED_SECONDS:
        return ""
    # Of a reply that was gone on with, what there was before took no time; an older server did
    # not say how much that was.
    tokens = timings.decoded or usage.completion_tokens
    return f"{(tokens - 1) / timings.decode_s:.1f}" if tokens > 1 else ""


def failure(entry: Entry) -> str:
    """Why a reply has no good end; empty for one that has."""
    if entry.status not in (Status.FAILED, Status.REFUSED):
        return ""
    return clean(entry.error or "The reply failed.")


def count(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f") if number >= 10_000 else str(number)


def duration(seconds: float) -> str:
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
