"""What an empty conversation shows in place of messages."""

from __future__ import annotations

WELCOME = """\
Type below and press Enter.

Everything stays on this machine, and every reply is on disk
before you see it: quit at any time, it goes on without you.

Ctrl+N  new conversation      Ctrl+S  your conversations
Ctrl+F  find                  Ctrl+P  all commands
Esc     stop a reply          F1      keys"""

STARTER = """


The bundled starter model is answering. It is tiny and often wrong;
`hobnob models list` shows what else is on this machine."""
