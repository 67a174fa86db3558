"""The terminal app, and the HTTP client that it shares with the CLI."""
