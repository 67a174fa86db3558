"""A small file system that is filled to its last byte: python full_disk.py HOME SIZE SCENE.

`fills`: the history's disk fills up in mid-reply. `full`: all of the user's files lie on a disk
that is full when the server starts. For a process of its own, in a mount namespace of its own
(`unshare --mount`). The real program runs in there; prints one JSON object of what was seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support_e2e import GREEDY, Home, kill, read_rest, read_some, wait_for

PROMPT = "Count from one to two hundred, in words, one number after the other."
ASK = ("ask", *GREEDY, "-o", "max_tokens", "150", "-o", "ignore_eos", "true")
FIRST_BYTES = 40


def fill(path: Path) -> None:
    """Takes the last byte of the disk."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                pass


def fills(home: Home) -> dict[str, Any]:
    data = home.paths.data_dir
    before = home.run(*ASK, PROMPT)
    asking = home.start(*ASK, PROMPT)
    shown = read_some(asking, FIRST_BYTES)
    fill(data / "filler")
    rest, complaints = read_rest(asking)
    refused = home.run(*ASK, "Is there room?")
    (data / "filler").unlink()
    reply = wait_for(lambda: r if (r := home.stored_replies()[0])["status"] == "length" else None)
    after = home.run("ask", "-o", "max_tokens", "1", "And now?")
    home.stop()
    checked = home.run("doctor", "--check-db")
    return {
        "expected": before.stdout.decode(),
        "shown": (shown + rest).decode(),
        "code": asking.returncode,
        "complaints": complaints.decode(),
        "refused": [refused.returncode, refused.stdout.decode(), refused.stderr.decode()],
        "stored": reply["text"],
        "conversations": [before.returncode, after.returncode],
        "checked": [checked.returncode, checked.stdout.decode()],
    }


def full(home: Home) -> dict[str, Any]:
    filler = home.path / "filler"
    brief = ("ask", *GREEDY, "-o", "max_tokens", "8")
    home.run(*brief, "Before the disk was full.")
    home.stop()
    fill(filler)
    starts = []
    for end in (home.stop, lambda: kill(home.status()["server"]["pid"]), lambda: None):
        shown = home.run("history", "list")
        refused = home.run(*brief, "Is there room? " * 2000)
        starts.append([_seen(shown), _seen(refused), home.get("/health")["state"]])
        end()
    filler.unlink()
    after = home.run(*brief, "And now?")
    listed = home.run("history", "list")
    home.stop()
    return {
        "starts": starts,
        "after": _seen(after),
        "listed": listed.stdout.decode(),
        "log": home.paths.server_log.read_text(),
        "checked": _seen(home.run("doctor", "--check-db")),
    }


def _seen(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    return [done.returncode, done.stdout.decode(), done.stderr.decode()]


def main() -> int:
    home = Home(Path(sys.argv[1]))
    scene, disk = {
        "fills": (fills, home.paths.data_dir),
        "full": (full, home.path),
    }[sys.argv[3]]
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={sys.argv[2]}", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        print(json.dumps(scene(home)))
    finally:
        home.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
