"""hobnob: a chat client for the terminal with its own local model server."""

__version__ = "0.1.0"
