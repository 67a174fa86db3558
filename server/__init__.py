"""The server process: HTTP in front, the engine process behind, the store beside it."""
