"""A new instance: state folder, address, nodes, root@pam and its token, and variables for clients."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipve.access.accounts import ROOT
from minipve.access.tickets import hash_secret, token_digest
from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.errors import MachineError, UserError
from minipve.base.paths import Paths
from minipve.http import tls
from minipve.image import golden
from minipve.network import interfaces, namespace
from minipve.node import members
from minipve.node.node import Node

# The state folder of an instance, with a marker file that protects other folders from removal.
#
# `MINIPVE_STATE` may name the wrong folder by mistake: a home, a link, another program's data. Therefore
# only
# new or empty folders get the marker, and minipve writes to and removes only folders with the marker.

MARK = ".minipve"
_MARK_TEXT = "minipve created this folder; `minipve stop --purge` removes all of it\n"


def claim(paths: Paths) -> None:
    """Create the state folder, private and marked. Raises UserError for somebody else's folder."""
    state = paths.state
    try:
        state.mkdir(parents=True, exist_ok=True)
        if foreign := _foreign_path(state):
            raise UserError(
                f"{foreign} belongs to another user (uid {foreign.lstat().st_uid})",
                "run this as that user, or set MINIPVE_STATE to a folder of your own",
            )
        if not (state / MARK).exists() and any(state.iterdir()):
            raise UserError(
                f"{state} is not empty and was not created by minipve",
                f"set MINIPVE_STATE to another folder; if it does belong to minipve: touch {state / MARK}",
            )
        (state / MARK).write_text(_MARK_TEXT)
        state.chmod(0o700)
    except OSError as error:
        raise UserError(f"state folder {state}: {error.strerror}") from error


def _foreign_path(state: Path) -> Path | None:
    """Return a path in the folder, or the folder itself, that another user owns: it may be a trap of links.

    Files of containers and templates belong to mapped user ids. They are not checked, because only the owner
    of the folder above can reach them.
    """
    nodes = (state, *(state / "nodes").glob("*"))
    guests = [node / name for node in nodes for name in ("containers", "templates")]
    for directory, folders, files in os.walk(state):
        if Path(directory) in guests:
            folders.clear()
        for path in (Path(directory), *(Path(directory, name) for name in (*folders, *files))):
            if (path.is_symlink() or path.exists()) and path.lstat().st_uid != os.geteuid():
                return path
    return None


def require_own(paths: Paths) -> None:
    """Raise UserError unless minipve created the folder. A link is refused, too."""
    state = paths.state
    if state.is_symlink():
        raise UserError(
            f"{state} is a link to {state.resolve()}: nothing was removed", f"rm -r {state.resolve()}"
        )
    if state.exists() and not (state / MARK).exists():
        raise UserError(
            f"minipve did not create {state}: nothing was removed",
            f"if it does belong to minipve: touch {state / MARK}",
        )


def remove(paths: Paths) -> None:
    """Remove the state folder, after ``require_own``."""
    require_own(paths)
    try:
        process.remove_tree(paths.state)
    except MachineError as error:
        raise UserError(str(error), f"rm -r {paths.state}") from error


# The address on which the endpoint listens, and the one by which clients on this machine reach it.

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


# The shell variables of common clients: community.proxmox, Terraform's provider bpg/proxmox, dasklab.


def variables(endpoint: Mapping[str, Any], password: str) -> dict[str, str]:
    """Return the variables for an endpoint.

    Args:
        endpoint: the contents of ``endpoint.json``.
        password: the password of root@pam.
    """
    token = f"{endpoint['user']}!{endpoint['token_id']}={endpoint['token_secret']}"
    return {
        "PROXMOX_URL": endpoint["url"],
        "PROXMOX_HOST": endpoint["host"],
        "PROXMOX_PORT": str(endpoint["port"]),
        "PROXMOX_NODE": endpoint["node"],
        "PROXMOX_USER": endpoint["user"],
        "PROXMOX_PASSWORD": password,
        "PROXMOX_TOKEN_ID": endpoint["token_id"],
        "PROXMOX_TOKEN_SECRET": endpoint["token_secret"],
        "PROXMOX_CA_FILE": endpoint["ca_file"],
        "PROXMOX_VE_ENDPOINT": endpoint["url"],
        "PROXMOX_VE_API_TOKEN": token,
        "MINIPVE_CONNECT": endpoint["connect"],
    }


# Set up a new instance: its nodes, and root@pam with a random password and an API token.

TOKEN = "minipve"  # belongs to root@pam, without privilege separation


def load(paths: Paths) -> Node:
    """Return the first node of an instance, with all nodes in its ``nodes``."""
    first = Node(paths)
    for name in paths.additional_nodes:
        Node(paths.of_node(name), name, first)
    if paths.additional_nodes:
        for node in first.nodes.values():
            node.network = namespace.handle(node.paths)
    return first


def set_up(node: Node, management: str, host: str) -> None:
    """Create what is missing: certificate, network configuration, root's password and token."""
    tls.ensure(node.cluster, node.name, host)
    for number, member in enumerate(node.nodes.values()):
        member.storage.create_directories()
        if not member.paths.interfaces.exists():
            text = interfaces.write_interfaces(interfaces.default(members.management(management, number)))
            write_atomic(member.paths.interfaces, text, 0o644)
    if TOKEN not in node.access.data["users"][ROOT]["tokens"]:
        _credentials(node)


def _credentials(node: Node) -> None:
    password, secret = secrets.token_urlsafe(24), str(uuid.uuid4())
    write_atomic(node.paths.root_password, password + "\n", 0o600)
    write_atomic(_token_file(node.paths), secret + "\n", 0o600)
    with node.access.change() as data:
        root = data["users"][ROOT]
        root["password"] = hash_secret(password)
        root["tokens"][TOKEN] = {"privsep": 0, "expire": 0, "secret": token_digest(secret)}


def _token_file(paths: Paths) -> Path:
    return paths.state / "etc" / "pve" / "priv-token"


def announce(node: Node, host: str, port: int) -> None:
    """Write ``endpoint.json`` (mode 0600), the last step before requests are served."""
    paths = node.paths
    facts = {
        "url": url(host, port),
        "host": host,
        "port": port,
        "node": node.name,
        "user": ROOT,
        "token_id": TOKEN,
        "token_secret": _token_file(paths).read_text().strip(),
        "ca_file": str(node.cluster / "pve-root-ca.pem"),
        **golden.files(paths),
        "shell": str(paths.enter_shell),
        "connect": str(paths.connect),
        "interfaces_file": str(paths.interfaces),
        "shells": {name: str(member.paths.enter_shell) for name, member in node.nodes.items()},
    }
    write_atomic(paths.endpoint_file, json.dumps(facts, indent=1) + "\n", 0o600)
