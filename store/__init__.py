"""Conversations, messages, runs and their logs in SQLite."""
