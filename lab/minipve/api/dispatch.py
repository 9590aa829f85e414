"""From an authenticated request to an answer: find the method, check permissions, validate, call the handler.

The order is that of pve-manager's rest_handler, because it decides which of several errors a caller sees.
"""

from __future__ import annotations

from typing import Any

from minipve.access.permissions import Permit
from minipve.api import coverage, routing, volume_access
from minipve.base.errors import FAILURES, ApiError, UnreachedError, denied, parameter_error, text_of
from minipve.config.rules import schema
from minipve.config.rules.validate import FormatError
from minipve.node.call import Call, Reply
from minipve.node.node import Node

PUBLIC = {("GET", "/access/ticket"), ("POST", "/access/ticket"), ("GET", "/access/domains")}

_UPLOAD = "/nodes/{node}/storage/{storage}/upload"


def takes_upload(verb: str, path: str) -> bool:
    """Return whether a request uploads a file, the only kind of request with a large body."""
    match = routing.find(verb, path)
    return match is not None and (verb, match[0]) == ("POST", _UPLOAD)


def permitted(
    node: Node, verb: str, path: str, authid: str, params: dict[str, Any] | None = None
) -> tuple[schema.Method, Permit, dict[str, Any]]:
    """Return the method, the caller's permit and all parameters. Raises ApiError for a forbidden call."""
    match = routing.find(verb, path)
    if match is None:
        raise ApiError(coverage.not_implemented(verb, path), 501)
    method = schema.method(verb, match[0])
    _refuse_conflicts(params or {}, match[1])
    values = (params or {}) | match[1]
    permit = Permit(node.access, authid, node.sdn.zone_of)
    if "!" in authid and not method.allow_token:
        raise denied(f"URI '{path}' not available with API token, need proper ticket.\n")
    permit.rule(method.permissions, values)
    return method, permit, values


def _refuse_conflicts(params: dict[str, Any], in_path: dict[str, str]) -> None:
    """Raise 400 for a parameter that contradicts the path. PVE does this before it checks permissions."""
    for name in sorted(params.keys() & in_path.keys()):
        if params[name] != in_path[name]:
            raise parameter_error(
                **{name: "duplicate parameter (already defined in URI) with conflicting values!"}
            )


def call(node: Node, verb: str, path: str, authid: str, params: dict[str, Any]) -> Reply:
    """Answer a request. Raises ApiError when it is refused or fails."""
    method, permit, values = permitted(node, verb, path, authid, params)
    target = _target(node, str(values["node"])) if method.on_node else node
    target.enter()
    checked = Call(target, permit, method.check(values))
    if verb != "GET" and (verb, method.path) not in PUBLIC and not node.is_quorate:
        raise ApiError("cluster not ready - no quorum?")
    try:
        if check_first := routing.checks().get((verb, method.path)):
            check_first(checked)
        volume_access.check(checked, method)
        answer = routing.load()[verb, method.path](checked)
    except (FormatError, *FAILURES) as failed:
        raise ApiError(text_of(failed)) from failed
    return answer if isinstance(answer, Reply) else Reply(answer, {})


def _target(node: Node, name: str) -> Node:
    """Return the node that a path names. Raises 500 when there is none, 595 when it is off."""
    if name == "localhost":
        return node
    if name not in node.nodes:
        raise _no_such_host(name)
    if not node.nodes[name].is_up:
        raise UnreachedError
    return node.nodes[name]


def _no_such_host(name: str) -> ApiError:
    reason = f"failed to get address info for: {name}: Temporary failure in name resolution"
    return ApiError(f"hostname lookup '{name}' failed - {reason}")
