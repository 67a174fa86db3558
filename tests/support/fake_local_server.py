"""A process that behaves as a local server towards launch.py, or misbehaves as it is told.

Run as a script. FAKE_SERVER says how: "" serves until SIGTERM or POST /stop; "die CODE WORDS"
says WORDS on stderr and exits; "hang" takes the lock and never answers; "second" waits until
another serves before it tries to take the lock. Each start leaves one line in $HOBNOB_HOME/starts.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from hobnob.paths import Paths
from hobnob.server.wire import WIRE_VERSION

INSTANCE = "fake-instance"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"state": "ready", "instance": INSTANCE, "args": sys.argv[1:]})

    def do_POST(self) -> None:
        wanted = os.environ.get("FAKE_KEY", "local-key")
        if self.headers["Authorization"] != f"Bearer {wanted}":
            self.send_error(401)
            return
        self._answer({"stopping": True})
        threading.Thread(target=self.server.shutdown).start()

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    paths = Paths.home()
    with open(os.path.join(os.environ["HOBNOB_HOME"], "starts"), "a") as file:
        file.write(f"{os.getpid()} {os.getsid(0)} {' '.join(sys.argv[1:])}\n")
    behaviour = os.environ.get("FAKE_SERVER", "").split(" ", 2)
    if behaviour[0] == "die":
        print("an earlier line\n\n" + behaviour[2], file=sys.stderr)
        sys.exit(int(behaviour[1]))
    while behaviour[0] == "second" and not paths.state_file.exists():
        time.sleep(0.01)
    lock = os.open(paths.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("hobnob: Another server is running.", file=sys.stderr)
        sys.exit(75)
    if behaviour[0] == "hang":
        time.sleep(20)
        return
    server = HTTPServer(("127.0.0.1", 0), Handler)
    host, port = server.server_address[:2]
    state = {
        "pid": os.getpid(),
        "host": host,
        "port": port,
        "url": f"http://{host}:{port}",
        "version": "0",
        "wire": int(os.environ.get("FAKE_WIRE", WIRE_VERSION)),
        "started_at": int(time.time() * 1000),
        "instance": INSTANCE,
    }
    paths.key_file.write_text("local-key\n")
    fresh = paths.state_file.with_suffix(".new")
    fresh.write_text(json.dumps(state))
    os.replace(fresh, paths.state_file)
    server.serve_forever()
    server.server_close()
    paths.state_file.unlink()


if __name__ == "__main__":
    main()
