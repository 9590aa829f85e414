"""An HTTPS server that answers as a test says, in place of Proxmox VE, or hangs up."""

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

from dasklab.machines.inventory.endpoint import Endpoint
from minipve.http import tls

HANG_UP = "hang up"


@dataclass
class Status:
    """An error answer: status, reason, and a body with parameter errors, a longer message or an HTML page."""

    code: int
    reason: str
    errors: dict[str, str] | None = None
    message: str = ""
    page: bytes | None = None


@dataclass
class FakePve:
    """The server. ``answers`` has data, a Status, bytes or HANG_UP for each path below /api2/json.

    A path includes its query. ``requests`` lists all requests.
    """

    answers: dict[str, Any]
    host: str = "127.0.0.1"
    port: int = 0
    ca_file: str = ""
    requests: list[str] = field(default_factory=list)

    def endpoint(self, **changes: Any) -> Endpoint:
        fields = {"host": self.host, "port": self.port, "user": "lab@pve", "token_id": "dasklab"}
        return Endpoint.from_inventory(
            {**fields, "token_secret": "secret", "ca_file": self.ca_file, **changes}
        )

    def answer(self, method: str, target: str) -> Any:
        parts = urlsplit(target)
        query = "&".join(f"{k}={v}" for k, v in parse_qsl(parts.query))
        path = parts.path.removeprefix("/api2/json/") + (f"?{query}" if query else "")
        self.requests.append(f"{method} {path}")
        answer = self.answers.get(path, Status(501, f"Method '{method} /{path}' not implemented"))
        if isinstance(answer, InTurn):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer


class InTurn(list[Any]):
    """Answers given one after the other; the last one is repeated."""


@contextmanager
def serving(
    answers: dict[str, Any], folder: Path, *, plain: bool = False, host: str = "127.0.0.1"
) -> Iterator[FakePve]:
    """Run a server with these answers; with ``plain`` it speaks HTTP without TLS."""
    fake = FakePve(answers, host)
    server = ThreadingHTTPServer((host, 0), _handler(fake))
    fake.port, fake.ca_file = server.server_address[1], str(tls.ensure(folder, "pve", "127.0.0.1"))
    if not plain:
        server.socket = tls.context(folder).wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up on purpose
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
        disable_nagle_algorithm = True  # else each answer waits 40 ms

        def log_message(self, *_: Any) -> None:
            pass

        def _do(self) -> None:
            answer = fake.answer(self.command, self.path)
            if answer == HANG_UP:
                self.close_connection = True
                if isinstance(self.connection, ssl.SSLSocket):
                    self.connection.unwrap()
                return
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, reason, body = 200, "OK", answer
            if isinstance(answer, Status):
                status, reason = answer.code, answer.reason
                text = answer.message or reason
                body = b"" if answer.code == 401 else {"data": None, "message": text, "errors": answer.errors}
                body = body if answer.page is None else answer.page
            elif not isinstance(answer, bytes):
                body = {"data": answer}
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status, reason)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815

    return Handler
