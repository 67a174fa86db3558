"""A time as servers give it, which may be one that no calendar has. Pure."""

from __future__ import annotations

from datetime import datetime, tzinfo


def moment(milliseconds: int, zone: tzinfo | None = None) -> datetime | None:
    """That time (UTC milliseconds) in the zone, or where the user is; None if there is none."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, zone)
    except (OverflowError, ValueError, OSError, TypeError):
        return None
