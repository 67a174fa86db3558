"""A program with the engine process's face and no model: what it does is in what it is told.

    fake_worker.py MODE FD      MODE: ok | refuse | crash | mute | slow
A run or a question named after a fault (`die`, `exit`, `hang`, `garbage`) brings it about.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time

from hobnob.server.engine import protocol as p


class Worker:
    def __init__(self, mode: str, fd: int):
        self.mode = mode
        self.socket = socket.socket(fileno=fd)

    def run(self) -> None:
        while (body := self._receive()) is not None:
            self._obey(p.command(body))

    def _obey(self, command: p.Command) -> None:
        match command:
            case p.Configure():
                self._load(command)
            case p.Render():
                self._fault(command.messages[0].text)
                if command.messages[0].text == "bad template":
                    self._send(p.Rendered(command.id, error="Roles must alternate."))
                else:
                    self._send(p.Rendered(command.id, [len(m.text) for m in command.messages]))
            case p.Tokenize():
                self._send(p.Rendered(command.id, [ord(c) for c in command.text]))
            case p.Lookup():
                self._fault(command.owner)
                self._send(p.Found(command.id, len(command.prompt) - 1))
            case p.Submit():
                self._fault(command.run)
                token = 100 + len(command.emitted)
                self._send(p.Stepped([p.Output(command.run, [token], "x")], stats=p.Stats(1)))
            case p.Cancel():
                self._send(p.Stepped([p.Output(command.run, finish=p.Finish("cancelled"))]))
            case p.Shutdown():
                if self.mode != "slow":
                    sys.exit(0)

    def _load(self, configure: p.Configure) -> None:
        if self.mode == "crash":
            print("ggml: CUDA error: out of memory\x1b[31m", file=sys.stderr, flush=True)
            sys.exit(1)
        if self.mode == "mute":
            return
        if self.mode == "refuse":
            self._send(p.LoadFailed("model_unavailable", f"{configure.model} is no GGUF file."))
            return
        self._send(p.TextReady("Fake", "v", "t", True, 1000, 2048))
        self._send(p.LoadProgress(0.5))
        measured = configure.measured or p.Measured(b"%d" % os.getpid(), 63, 128, 0.5)
        self._send(p.Ready(1024, 4096, 4, 512, 1, 0, "cpu", 63, measured=measured))

    def _fault(self, name: str) -> None:
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "exit":
            print("GGML_ASSERT(n_tokens > 0) failed", file=sys.stderr, flush=True)
            sys.exit(3)
        if name == "hang":
            time.sleep(3600)
        if name == "garbage":
            self.socket.sendall(struct.pack(">I", 3) + b"\xc1\xc1\xc1")

    def _send(self, report: p.Report) -> None:
        self.socket.sendall(p.frame(report))

    def _receive(self) -> bytes | None:
        head = self._exactly(p.LENGTH.size)
        return None if head is None else self._exactly(p.LENGTH.unpack(head)[0])

    def _exactly(self, size: int) -> bytes | None:
        got = b""
        while len(got) < size:
            part = self.socket.recv(size - len(got))
            if not part:
                return None
            got += part
        return got


if __name__ == "__main__":
    Worker(sys.argv[1], int(sys.argv[2])).run()
