"""An HTTPS server that says what a test wants a Proxmox VE to say, or hangs up."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dasklab.machines.endpoint import Endpoint
from minipve import tls

HANG_UP = "hang up"


@dataclass
class Status:
    """An error: status, reason and what the body has: parameter errors, a longer message, or a page."""

    code: int
    reason: str
    errors: dict[str, str] | None = None
    message: str = ""
    page: bytes | None = None


@dataclass
class FakePve:
    """What is answered, by path (below /api2/json, with its query): data, a Status, bytes, or HANG_UP.

    A list is said one after the other; its last entry for ever.
    """

    answers: dict[str, Any]
    host: str = "127.0.0.1"
    port: int = 0
    ca_file: str = ""
    asked: list[str] = field(default_factory=list)

    def endpoint(self, **changes: Any) -> Endpoint:
        """The endpoint that a client is given."""
        fields = {"host": self.host, "port": self.port, "user": "lab@pve", "token_id": "dasklab"}
        return Endpoint.from_inventory(
            {**fields, "token_secret": "secret", "ca_file": self.ca_file, **changes}
        )

    def answer(self, method: str, target: str) -> Any:
        """What is said to a request."""
        parts = urlsplit(target)
        query = "&".join(f"{k}={v}" for k, v in parse_qsl(parts.query))
        path = parts.path.removeprefix("/api2/json/") + (f"?{query}" if query else "")
        self.asked.append(f"{method} {path}")
        said = self.answers.get(path, Status(501, f"Method '{method} /{path}' not implemented"))
        if isinstance(said, Said):
            return said.pop(0) if len(said) > 1 else said[0]
        return said


class Said(list[Any]):
    """Answers one after the other."""


@contextmanager
def serving(
    answers: dict[str, Any], folder: Path, *, plain: bool = False, host: str = "127.0.0.1"
) -> Iterator[FakePve]:
    """A server with these answers; ``plain`` speaks HTTP without TLS."""
    fake = FakePve(answers, host)
    server = ThreadingHTTPServer((host, 0), _handler(fake))
    fake.port, fake.ca_file = server.server_address[1], str(tls.ensure(folder, "pve"))
    if not plain:
        server.socket = tls.context(folder).wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are meant
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(fake: FakePve) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are written apart: each answer would wait 40 ms

        def log_message(self, *_: Any) -> None:
            pass

        def _do(self) -> None:
            said = fake.answer(self.command, self.path)
            if said == HANG_UP:
                self.close_connection = True
                if isinstance(self.connection, ssl.SSLSocket):
                    self.connection.unwrap()
                return
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, reason, body = 200, "OK", said
            if isinstance(said, Status):
                status, reason = said.code, said.reason
                text = said.message or reason
                body = b"" if said.code == 401 else {"data": None, "message": text, "errors": said.errors}
                body = body if said.page is None else said.page
            elif not isinstance(said, bytes):
                body = {"data": said}
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status, reason)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815

    return Handler
