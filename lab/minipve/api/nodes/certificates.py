"""Certificates: those of the node, and the ACME configuration of a cluster that has never used ACME."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.http import tls
from minipve.node.call import Call

_STANDALONE = {"plugin": "standalone", "type": "standalone"}
"""The ACME plugin that every cluster has."""


@route("GET", "/nodes/{node}/certificates/info")
def info(call: Call) -> list[dict[str, Any]]:
    """Return what the certificates of the authority and of the node contain."""
    return [tls.describe(call.node.cluster / name) for name in (tls.CA_FILE, tls.CERTIFICATE_FILE)]


@route("GET", "/cluster/acme/account")
def accounts(call: Call) -> list[dict[str, Any]]:
    return []


@route("GET", "/cluster/acme/plugins")
def plugins(call: Call) -> list[dict[str, Any]]:
    return [_STANDALONE] if call.get("type") in (None, "standalone") else []
