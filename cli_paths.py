"""`hobnob paths`: where the files lie."""

from __future__ import annotations

from typing import Annotated

import typer

from hobnob.cli_arguments import Json, usage
from hobnob.exits import Exit


def paths(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", show_default=False, help="That one alone.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print where the database, the settings, the key and the logs lie, there or not."""
    from hobnob.paths import Paths

    home = Paths.home()
    places = {
        "database": home.database,
        "config": home.config_file,
        "roles": home.config_dir / "roles",
        "key": home.key_file,
        "server-log": home.server_log,
        "engine-log": home.engine_log,
        "snapshots": home.snapshots_dir,
        "state": home.state_dir,
    }
    if name is not None and name not in places:
        raise usage(f"There is no such place; there are {', '.join(places)}.")
    shown = places if name is None else {name: places[name]}
    if as_json:
        from hobnob.tui.plain import print_json

        print_json({one: str(place) for one, place in shown.items()})
    elif name is not None:
        print(places[name])
    else:
        for one, place in places.items():
            print(f"{one:<11} {place}")
    return Exit.OK
