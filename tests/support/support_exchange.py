"""A small conversation, as exports get it."""

from __future__ import annotations

from hobnob.tui.records import Conversation, Message, Tree


def tree(*texts: str, title: str = "", **fields: str) -> Tree:
    messages = []
    for number, text in enumerate(texts):
        role = "user" if number % 2 == 0 else "assistant"
        parent = f"m{number - 1}" if number else None
        messages.append(
            Message(f"m{number}", "c", parent, role, text, **({"status": "completed"} | fields))
        )
    return Tree(Conversation("c", title, head=messages[-1].id if messages else None), messages)
