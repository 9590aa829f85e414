"""Notifications as on a new cluster: one target and one matcher, both built in. minipve sends none."""

from __future__ import annotations

from typing import Any

from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.node.call import Call

_PATH = "/cluster/notifications"
_BUILT_IN = {"origin": "builtin"}
_TARGET = {"name": "mail-to-root", "comment": "Send mails to root@pam's email address"}
_ENDPOINTS: dict[str, list[dict[str, Any]]] = {
    "gotify": [],
    "sendmail": [_TARGET | {"mailto-user": ["root@pam"]}],
    "smtp": [],
    "webhook": [],
}
_MATCHERS: list[dict[str, Any]] = [
    {
        "name": "default-matcher",
        "comment": "Route all notifications to mail-to-root",
        "mode": "all",
        "target": ["mail-to-root"],
    }
]
_TYPES = ("fencing", "package-updates", "replication", "system-mail", "vzdump")


@route("GET", f"{_PATH}/targets")
def targets(call: Call) -> list[dict[str, Any]]:
    return [_TARGET | {"type": "sendmail"} | _BUILT_IN]


@route("GET", f"{_PATH}/matcher-fields")
def matcher_fields(call: Call) -> list[dict[str, str]]:
    return [{"name": name} for name in ("type", "hostname", "job-id")]


@route("GET", f"{_PATH}/matcher-field-values")
def matcher_field_values(call: Call) -> list[dict[str, str]]:
    """Return the types of notifications and the nodes' names. There are no backup jobs."""
    types = [{"field": "type", "value": name} for name in _TYPES]
    return types + [{"field": "hostname", "value": name} for name in call.node.nodes]


def _declare(path: str, noun: str, entries: list[dict[str, Any]]) -> None:
    @route("GET", path)
    def entry_list(call: Call) -> list[dict[str, Any]]:
        return [entry | _BUILT_IN for entry in entries]

    @route("GET", f"{path}/{{name}}")
    def read(call: Call) -> dict[str, Any]:
        """Return one entry. Raises 404 for any other."""
        for entry in entries:
            if entry["name"] == call["name"]:
                return entry
        raise ApiError(f"{noun} '{call['name']}' not found", 404)


_declare(f"{_PATH}/matchers", "matcher", _MATCHERS)
for _kind, _entries in _ENDPOINTS.items():
    _declare(f"{_PATH}/endpoints/{_kind}", f"{_kind} endpoint", _entries)
