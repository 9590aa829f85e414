"""Set up a new instance: its nodes, and root@pam with a random password and an API token."""

from __future__ import annotations

import json
import secrets
import uuid
from pathlib import Path

from minipve.access.accounts import ROOT
from minipve.access.tickets import hash_secret, token_digest
from minipve.base.atomic import write_atomic
from minipve.base.paths import Paths
from minipve.endpoint import address
from minipve.http import tls
from minipve.image import golden
from minipve.network import interfaces, namespace
from minipve.node import members
from minipve.node.node import Node

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
        "url": address.url(host, port),
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
