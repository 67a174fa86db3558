"""The server without the commit that comes before each step's text is shown: what that costs.

Messages are stored as ever; what is generated never is. Only for the bench.

    python -m bench.unlogged --model FILE --port N
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hobnob.server import main
from hobnob.store.store import Store
from hobnob.store.values import Append


async def _keep_nothing(_: Store, __: Sequence[Append]) -> list[str]:
    return []


if __name__ == "__main__":
    Store.append = _keep_nothing  # type: ignore[method-assign]
    sys.exit(main.main())
