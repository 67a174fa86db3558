"""How keys are called on the screen. Pure."""

from __future__ import annotations

_NAMES = {
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "slash": "/",
    "underscore": "_",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def key_name(key: str) -> str:
    """ctrl+pageup → Ctrl+PgUp."""
    parts = [_NAMES.get(part, part) for part in key.strip().split("+")]
    if len(parts) == 1 and len(parts[0]) == 1:
        return parts[0]
    return "+".join(part if part in _NAMES.values() else part.capitalize() for part in parts)
