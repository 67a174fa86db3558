"""The HTTP edge: pydantic in, dataclasses out, no state."""
