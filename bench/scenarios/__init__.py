"""All scenarios, in the order of the table."""

from __future__ import annotations

from bench.scenario import Scenario
from bench.scenarios import (
    busy_core,
    commits,
    copying,
    exact,
    goodput,
    growing,
    long_prompt,
    naive,
    overhead,
    oversubscribed,
    reopen,
    shared_prefix,
    soak,
    streams,
)

ALL: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        *streams.SCENARIOS,
        shared_prefix.SCENARIO,
        long_prompt.SCENARIO,
        growing.SCENARIO,
        oversubscribed.SCENARIO,
        reopen.SCENARIO,
        *copying.SCENARIOS,
        busy_core.SCENARIO,
        naive.SCENARIO,
        goodput.SCENARIO,
        *overhead.SCENARIOS,
        exact.SCENARIO,
        commits.SCENARIO,
        soak.SCENARIO,
    )
}
