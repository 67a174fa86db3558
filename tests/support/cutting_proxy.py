"""A TCP proxy that cuts the answer to a stream request after chosen numbers of bytes.

Runs in threads of the test. Each connection carries one request head to the server unchanged;
the bytes of an event stream are counted over all connections, and at each chosen offset the
connection is ended: in turn by a close, by a reset, and by a half-close that stays silent.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

EVENTS_REQUEST = re.compile(rb"^GET \S*/runs/[^/ ]+/events")
LAST_EVENT_ID = re.compile(rb"(?im)^last-event-id:\s*(\d+)\r?$|[?&]after=(\d+)")
RESET = struct.pack("ii", 1, 0)
HALF_CLOSE_SECONDS = 0.3


class CuttingProxy:
    """Forwards to `target`; `cuts` are offsets into the event stream's bytes, ascending."""

    def __init__(self, target: tuple[str, int], cuts: list[int]):
        self._target = target
        self._cuts = sorted(cuts)
        self._passed = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.cuts_made = 0
        self.requests: list[str] = []
        """The first line of each request, in order."""
        self.resumed_from: list[int] = []
        """The Last-Event-ID of each stream request that carried one, in order."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        """Accepts until closed. Thread: one of the proxy's own."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            thread.start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            server = socket.create_connection(self._target)
            with server:
                head = _read_head(client)
                if not head:
                    return
                self.requests.append(head.split(b"\r\n", 1)[0].decode("latin-1"))
                is_stream = EVENTS_REQUEST.match(head) is not None
                if is_stream and (found := LAST_EVENT_ID.search(head)):
                    self.resumed_from.append(int(found[1] or found[2]))
                server.sendall(_one_request(head))
                up = threading.Thread(target=_pump, args=(client, server), daemon=True)
                up.start()
                self._down(server, client, up, is_stream)

    def _down(
        self, server: socket.socket, client: socket.socket, up: threading.Thread, is_stream: bool
    ) -> None:
        """Passes the answer on, up to the next cut if it is an event stream."""
        body_seen = False
        while data := server.recv(65536):
            if is_stream and not body_seen:
                # Only the stream itself is counted and cut, not its head.
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    client.sendall(data)
                    continue
                client.sendall(data[: end + 4])
                data, body_seen = data[end + 4 :], True
            if body_seen and (kept := self._count(data)) is not None:
                client.sendall(data[:kept])
                self._cut(client, up)
                return
            client.sendall(data)

    def _count(self, data: bytes) -> int | None:
        """Counts the bytes; the number of them to pass when a cut falls inside, else None."""
        with self._lock:
            start, self._passed = self._passed, self._passed + len(data)
            if self._cuts and self._cuts[0] < self._passed:
                kept = max(0, self._cuts.pop(0) - start)
                self._passed = start + kept
                self.cuts_made += 1
                return kept
        return None

    def _cut(self, client: socket.socket, up: threading.Thread) -> None:
        kind = self.cuts_made % 3
        if kind == 2:
            client.shutdown(socket.SHUT_WR)
            threading.Event().wait(HALF_CLOSE_SECONDS)
        if kind == 1:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        # Wakes the other direction: while that reads, a close would send nothing.
        client.shutdown(socket.SHUT_RD if kind == 1 else socket.SHUT_RDWR)
        up.join()
        client.close()


@contextmanager
def cutting_proxy(target: tuple[str, int], cuts: list[int]) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, cuts)
    threading.Thread(target=proxy.run, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()


def _read_head(client: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(65536)
        if not data:
            return b""
        head += data
    return head


def _one_request(head: bytes) -> bytes:
    """Asks the server to close after its answer, so that each connection carries one request."""
    return re.sub(rb"(?im)^connection:.*\r\n", b"", head).replace(
        b"\r\n", b"\r\nConnection: close\r\n", 1
    )


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
