"""The naive baseline of the literature: batches of whole requests on the same engine.

An engine worker whose scheduler takes nobody in until everybody of the batch before has ended;
all else is the product's own. Finished rows are not computed on as padding, which the systems
that the literature measures against did: this baseline is the better one of the two.

    python -m bench.whole_requests FD
"""

from __future__ import annotations

from hobnob.server.engine import steps, worker
from hobnob.server.engine.scheduler import Plan, Scheduler


class WholeRequests(Scheduler):
    def _admit(self, plan: Plan, now: float) -> None:
        if not self._running:
            super()._admit(plan, now)


if __name__ == "__main__":
    steps.Scheduler = WholeRequests  # type: ignore[misc]
    worker.main()
