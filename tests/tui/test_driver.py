"""The thread that reads the terminal keeps no process alive."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

SCRIPT = """
import threading
from types import SimpleNamespace
from hobnob.tui.driver import ReadingDriver

class Forgotten(ReadingDriver):
    def __init__(self):
        self.fileno, self.exit_event = 0, threading.Event()
    write = flush = start_application_mode = disable_input = stop_application_mode = None

Forgotten.__abstractmethods__ = frozenset()
threading.Thread(target=Forgotten().run_input_thread).start()
"""


def test_a_process_whose_app_did_not_end_the_reading_ends_all_the_same() -> None:
    """As after an error in the midst of an error; with the terminal there, and gone."""
    for gone in (False, True):
        master, slave = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdin=slave, stderr=subprocess.DEVNULL
        )
        os.close(slave)
        if gone:
            os.close(master)
        assert child.wait(20) == 0
        if not gone:
            os.close(master)
