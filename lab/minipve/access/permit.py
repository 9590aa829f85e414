"""Permission checks of a call, from the schema and from handlers, with PVE's 403 texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minipve.access.accounts import ROOT, Access, normalise_path
from minipve.access.rights import Right
from minipve.base.errors import ApiError, denied, parameter_error
from minipve.config.rules.formats import split_list

_MODIFY = {"storage": "Datastore.Allocate", "vms": "VM.Allocate", "pool": "Pool.Allocate"}
"""Area -> the privilege that is enough to change permissions on one of its objects, but not on the area."""


class Permit:
    """The privileges of the caller, a user or a token.

    ``zone_of`` returns the SDN zone of a bridge; a bridge's access-control path contains it.
    """

    def __init__(
        self, access: Access, authid: str, zone_of: Callable[[str], str] = lambda bridge: "localnetwork"
    ) -> None:
        self.access = access
        self.authid = authid
        self.zone_of = zone_of

    @property
    def is_root(self) -> bool:
        """True for root@pam itself, but not for its tokens, as in PVE."""
        return self.authid == ROOT

    def has(self, path: str, privs: Iterable[str], any_of: bool = False) -> bool:
        """Return whether the caller has all (or any) of ``privs`` on ``path``."""
        privileges = self.access.privileges(self.authid, path) if path else {}
        return (any if any_of else all)(priv in privileges for priv in privs)

    def require(self, path: str, privs: Iterable[str], any_of: bool = False) -> None:
        """Raise 403 unless ``has``. The text names the first missing privilege, or all alternatives."""
        privs = list(privs)
        if self.has(path, privs, any_of):
            return
        privileges = self.access.privileges(self.authid, path) if path else {}
        missing = "|".join(privs) if any_of else next(p for p in privs if p not in privileges)
        raise denied(f"{path}, {missing}")

    def need_right(self, right: Right, **names: object) -> None:
        """Raise 403 without a right on an object. ``names`` fill the template of its path."""
        path = right.path.format_map(names)
        if not (right.instead and self.has(path, right.instead)):
            self.require(path, right.privileges, right.any_of)

    def need_vm(self, vmid: int, pool: str | None, privs: Iterable[str], any_of: bool = False) -> None:
        """Raise 403 unless the caller has the privileges on the VM, or on the pool of a new VM."""
        privs = list(privs)
        if not (pool and self.has(f"/pool/{pool}", privs, any_of)):
            self.require(f"/vms/{vmid}", privs, any_of)

    def need_root_option(self, name: str, params: Mapping[str, Any]) -> None:
        """Raise 400 when anyone but root sets a root-only parameter such as ``skiplock``."""
        if params.get(name) and not self.is_root:
            raise parameter_error(**{name: "Only root may use this option."})

    def rule(self, permissions: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
        """Apply the schema's rule of a method. ``params`` fills its placeholders such as ``{vmid}``."""
        if self.is_root or (permissions and permissions.get("user") in ("all", "world")):
            return
        if not permissions or "check" not in permissions:
            raise denied("user != root@pam")
        self._check(permissions["check"], params)

    def _check(self, check: list[Any], params: Mapping[str, Any]) -> None:
        kind, *rest = check
        getattr(self, "_check_" + kind.replace("-", "_"))(rest, params)

    def _check_and(self, parts: list[Any], params: Mapping[str, Any]) -> None:
        for part in parts:
            self._check(part, params)

    def _check_or(self, parts: list[Any], params: Mapping[str, Any]) -> None:
        if not any(self._passes(part, params) for part in parts):
            raise denied()

    def _passes(self, check: list[Any], params: Mapping[str, Any]) -> bool:
        try:
            self._check(check, params)
        except ApiError:
            return False
        return True

    def _check_perm(self, rest: list[Any], params: Mapping[str, Any]) -> None:
        template, privs, *flags = rest
        options = dict(zip(flags[::2], flags[1::2], strict=True))
        if (needed := options.get("require_param")) and not params.get(needed):
            raise denied()
        self.require(_fill(template, params), privs, bool(options.get("any")))

    def _check_perm_modify(self, rest: list[Any], params: Mapping[str, Any]) -> None:
        path = _fill(rest[0], params)
        self.require(path, modifying(path), any_of=True)

    def _check_userid_param(self, rest: list[Any], params: Mapping[str, Any]) -> None:
        userid = str(params.get("userid", ""))
        if rest[0] == "self":
            if userid != self.authid:
                raise denied()
        else:
            self.require(f"/access/realm/{userid.partition('@')[2]}", [rest[0]])

    def _check_userid_group(self, rest: list[Any], params: Mapping[str, Any]) -> None:
        """Raise 403 unless the caller may manage all users, or the groups of this one.

        With the flag ``groups_param``, the parameter ``groups`` names new groups, on which the caller needs
        the privileges, too. Its value ``create`` means that the user does not exist yet.
        """
        privs, *flags = rest
        groups_param = dict(zip(flags[::2], flags[1::2], strict=True)).get("groups_param")
        userid = str(params.get("userid", ""))
        if groups_param != "create":
            self.access.user(userid)
        if self.has("/access/groups", privs, any_of=True):
            return
        if groups_param:
            for path in _group_paths(params):
                self.require(path, privs, any_of=True)
        if groups_param != "create" and userid not in self.members_of_groups(privs):
            raise denied()

    def members_of_groups(self, privs: Iterable[str]) -> set[str]:
        """Return the users in groups on which the caller has any of ``privs``."""
        groups = self.access.data["groups"].items()
        visible = [group for name, group in groups if self.has(f"/access/groups/{name}", privs, any_of=True)]
        return {userid for group in visible for userid in group["users"]}


def modifying(path: str) -> list[str]:
    """Return the privileges of which one is enough to change the permissions on ``path``."""
    area, _, name = path.lstrip("/").partition("/")
    return ["Permissions.Modify", *([_MODIFY[area]] if name and area in _MODIFY else [])]


def _group_paths(params: Mapping[str, Any]) -> list[str]:
    """Return the access-control paths of the groups in a request; without any, that of all groups."""
    names = split_list(str(params.get("groups", "")))
    return [f"/access/groups/{name}" for name in names] or ["/access/groups"]


def _fill(template: str, params: Mapping[str, Any]) -> str:
    return normalise_path(re.sub(r"{([^}]+)}", lambda m: str(params.get(m[1], "")), template))
