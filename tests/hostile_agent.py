"""A hostile guest agent, which takes the place of a machine's own agent."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

RAW = [  # invalid answers to every command
    b"hello",
    b"",
    b"null",
    b"[]",
    b"7",
    b'"return"',
    b"{",
    b"\xff\xfe\x00",
    b'{"return": 1e999}',
    b'{"return": NaN}',
    b'{"return": "\\ud800"}',
    b'{"return": ' + b"9" * 5000 + b"}",
    b'{"return": ' + b"[" * 900 + b"]" * 900 + b"}",
    b"[" * 100_000,
    b'{"error": null}',
    b'{"error": "text"}',
    b'{"error": {}}',
    b'{"error": {"desc": {"a": 1}}}',
    b'{"error": {"desc": -1}}',
    b'{"error": []}',
]
VALUES: list[Any] = [  # values that are valid for some commands only
    None, True, -1, 10**30, 1.5, "", "x" * 100_000, "\n\r\0", [], [[]], [None, -1], {},
    {"pid": -1}, {"pid": "1"}, {"pid": None}, {"pid": True},
    {"exited": "yes"}, {"exited": True, "out-data": 7}, {"exited": True, "out-data": "*"},
    {"exited": True, "exitcode": -1, "err-data": None}, {"exited": False, "": {"a": []}},
    {"buf-b64": 5, "eof": True}, {"buf-b64": "AAAA"}, {"buf-b64": "AAAA", "eof": "no"}, {"eof": True},
    {"buf-b64": "é", "eof": True}, {"buf-b64": "A" * 2**20, "eof": True, "count": -1},
]  # fmt: skip
ANSWERS = [
    *RAW,
    *(json.dumps({"return": value}).encode() for value in VALUES),
    b'{"error": {"desc": "refused\\nTraceback? \\u2019 ' + b"x" * 100_000 + b'"}}',
]
Choose = Callable[[str], bytes]


class HostileAgent:
    """Serves at ``path``, where QEMU listened before. ``choose`` returns the answer to each command.

    A ``polite`` agent answers ``guest-sync``, the endpoint's first command, correctly.
    """

    def __init__(self, path: Path, choose: Choose, polite: bool = True) -> None:
        self.choose, self.polite = choose, polite
        path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=10)
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            with contextlib.suppress(OSError), connection, connection.makefile("rwb") as stream:
                for line in stream:
                    stream.write(self._answer(json.loads(line)) + b"\n")
                    stream.flush()

    def _answer(self, message: dict[str, Any]) -> bytes:
        if message["execute"] == "guest-sync" and self.polite:
            return json.dumps({"return": message["arguments"]["id"]}).encode()
        return self.choose(message["execute"])
