"""From an authenticated request to an answer: find the method, ask permission, validate, call the handler.

The order is PVE's (pve-manager's rest_handler), because it decides which of several errors a caller sees.
"""

from __future__ import annotations

from typing import Any

from minipve import api, volume_access
from minipve.access.permit import Permit
from minipve.config import schema
from minipve.config.validate import FormatError
from minipve.errors import FAILURES, ApiError, UnreachedError, denied, parameter_error, text_of
from minipve.node import Call, Node, Reply

PUBLIC = {("GET", "/access/ticket"), ("POST", "/access/ticket"), ("GET", "/access/domains")}


_UPLOAD = "/nodes/{node}/storage/{storage}/upload"


def takes_upload(verb: str, path: str) -> bool:
    """Whether a request brings a file, and so is the one kind whose body may be large."""
    found = api.find(verb, path)
    return found is not None and (verb, found[0]) == ("POST", _UPLOAD)


def permitted(
    node: Node, verb: str, path: str, authid: str, given: dict[str, Any] | None = None
) -> tuple[schema.Method, Permit, dict[str, Any]]:
    """The method that serves the request, if its caller may use it, and the parameters with the path's."""
    found = api.find(verb, path)
    if found is None:
        raise ApiError(f"Method '{verb} {path}' not implemented", 501)
    method = schema.method(verb, found[0])
    _refuse_conflicts(given or {}, found[1])
    values = (given or {}) | found[1]
    permit = Permit(node.access, authid, node.sdn.zone_of)
    if "!" in authid and not method.allow_token:
        raise denied(f"URI '{path}' not available with API token, need proper ticket.\n")
    permit.rule(method.permissions, values)
    return method, permit, values


def _refuse_conflicts(given: dict[str, Any], in_path: dict[str, str]) -> None:
    """400, before anybody's rights are looked at, for a parameter that contradicts the path."""
    for name in sorted(given.keys() & in_path.keys()):
        if given[name] != in_path[name]:
            raise parameter_error(
                **{name: "duplicate parameter (already defined in URI) with conflicting values!"}
            )


def call(node: Node, verb: str, path: str, authid: str, given: dict[str, Any]) -> Reply:
    """The answer to one request; ApiError for every one that is refused or fails."""
    method, permit, values = permitted(node, verb, path, authid, given)
    meant = _meant(node, str(values["node"])) if method.on_node else node
    meant.enter()
    checked = Call(meant, permit, method.check(values))
    try:
        if check_first := api.checks().get((verb, method.path)):
            check_first(checked)
        volume_access.check(checked, method)
        answer = api.load()[verb, method.path](checked)
    except (FormatError, *FAILURES) as failed:
        raise ApiError(text_of(failed)) from failed
    return answer if isinstance(answer, Reply) else Reply(answer, {})


def _meant(node: Node, name: str) -> Node:
    """The node that a path names; 500 for one that there is not, 595 for one that is not reached."""
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
