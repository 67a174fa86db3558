"""A model hub on this machine: what the real one answers to the questions that we ask it.

Files lie on a second address, as the real one's do, so that it is seen who gets the token.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Asked:
    path: str
    token: str | None
    start: int  # of the range that was asked for


@dataclass
class FakeHub:
    repo: str = "someone/Nice-GGUF"
    files: dict[str, bytes] = field(default_factory=dict)
    token: str | None = None  # without it: as if there were nothing
    gated: bool = False
    status: int | None = None  # of every answer
    cuts: list[int] = field(default_factory=list)  # bytes that connections to files bring
    stall: threading.Event | None = None  # waited for after the first cut, in place of an end
    ranges: bool = True  # whether a part can be asked for
    forged: dict[str, bytes] = field(default_factory=dict)  # sent in place of the content
    sizes: dict[str, int] = field(default_factory=dict)  # said in place of the true ones
    asked: list[Asked] = field(default_factory=list)
    fetched: list[Asked] = field(default_factory=list)
    url: str = ""
    cdn: str = ""

    @contextmanager
    def running(self) -> Iterator[FakeHub]:
        servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), self._handler(at)) for at in ("hub", "cdn")
        ]
        for server in servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.url, self.cdn = (f"http://127.0.0.1:{s.server_address[1]}" for s in servers)
        try:
            yield self
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()

    def _handler(self, at: str) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(self.path.partition("?")[0])
                start = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
                asked = Asked(path, self.headers.get("Authorization"), start)
                (hub.asked if at == "hub" else hub.fetched).append(asked)
                if at == "cdn":
                    self._content(path[1:], asked)
                elif hub.status is not None:
                    self._refuse(hub.status, "")
                else:
                    self._answer(path, asked)

            def _answer(self, path: str, asked: Asked) -> None:
                known = hub.token is None or asked.token == f"Bearer {hub.token}"
                if not path.removeprefix("/api/models").startswith(f"/{hub.repo}/"):
                    self._refuse(404 if asked.token else 401, "RepoNotFound")
                elif not known and not hub.gated:
                    self._refuse(401, "RepoNotFound" if not asked.token else "")
                elif path == f"/api/models/{hub.repo}/revision/main":
                    self._json({"id": hub.repo, "sha": COMMIT, "siblings": hub.siblings()})
                elif path.startswith("/api/"):
                    self._refuse(404, "RevisionNotFound")
                elif not known:
                    self._refuse(403, "GatedRepo")
                else:
                    file = re.fullmatch(rf"/{hub.repo}/resolve/{COMMIT}/(.+)", path)
                    assert file is not None, path
                    self.send_response(302)
                    self.send_header("Location", f"{hub.cdn}/{file[1]}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def _content(self, name: str, asked: Asked) -> None:
                data = hub.forged.get(name, hub.files[name])
                start = asked.start if hub.ranges else 0
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                rest = data[start:]
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                if hub.cuts:
                    self.wfile.write(rest[: hub.cuts.pop(0)])
                    self.wfile.flush()
                    if hub.stall is not None:
                        hub.stall.wait(30)
                    self.close_connection = True
                else:
                    with suppress(ConnectionError):  # whoever asked has gone
                        self.wfile.write(rest)

            def _json(self, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _refuse(self, status: int, why: str) -> None:
                self.send_response(status)
                if why:
                    self.send_header("X-Error-Code", why)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing on stderr: that is looked at."""

        return Handler

    def siblings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for name, data in self.files.items():
            size, digest = self.sizes.get(name, len(data)), hashlib.sha256(data).hexdigest()
            one: dict[str, Any] = {"rfilename": name, "size": size, "blobId": git_digest(data)}
            if name.endswith(".gguf"):
                one["lfs"] = {"sha256": digest, "size": size, "pointerSize": 135}
            found.append(one)
        return found


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
