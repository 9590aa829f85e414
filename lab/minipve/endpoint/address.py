"""The address on which the endpoint listens, and the one by which clients on this machine reach it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from minipve.base.user_error import UserError

BACKLOG = 1024  # connections that wait until the endpoint accepts them


@dataclass(frozen=True)
class Address:
    """An IP address and a port; ``port`` is None if the user did not choose one."""

    host: str = "127.0.0.1"
    port: int | None = None

    @classmethod
    def parse(cls, host: str, port: int | None, allow_remote: bool) -> Address:
        """Check an address from the command line.

        Raises:
            UserError: it is not an IP address, or other machines could reach it without ``allow_remote``.
        """
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            raise UserError(f"--listen {host}: not an IP address") from None
        if not is_loopback and not allow_remote:
            text = f"--listen {host}: other machines could reach the endpoint and run guests on this one"
            raise UserError(text, "add --allow-remote to permit this")
        return cls(host, port)

    def bind(self, previous_port: int) -> socket.socket:
        """Return a listening socket. Without a chosen port: on ``previous_port``, or else on a free one.

        Raises:
            UserError: the chosen port is in use, or this machine does not have the address.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port or previous_port))
        except OSError as error:
            if self.port:
                listener.close()
                raise UserError(f"cannot listen on {self.host} port {self.port}: {error.strerror}") from error
            listener.bind((self.host, 0))
        listener.listen(BACKLOG)
        return listener

    def options(self) -> list[str]:
        """Return the command-line options that parse to this address."""
        port = ["--port", str(self.port)] if self.port else []
        return ["--listen", self.host, "--allow-remote", *port]


def local_host(listener: socket.socket) -> str:
    """Return the address by which clients on this machine reach a listening socket."""
    host = str(listener.getsockname()[0])
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url(host: str, port: int) -> str:
    """Return the base URL of an endpoint."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
