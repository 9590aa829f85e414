"""Users, tokens, roles, access-control list and pools in one JSON file, and the privileges they result in."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minipve.base.atomic import write_atomic
from minipve.base.errors import ApiError, UserError
from minipve.config.rules.privileges import BUILTIN_ROLES, PRIVILEGES

ROOT = "root@pam"
log = logging.getLogger(__name__)
TOP_PATHS = ("/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms", "/mapping")
_EMPTY: dict[str, Any] = {
    "users": {ROOT: {"enable": 1, "tokens": {}}},
    "groups": {},
    "roles": {},
    "acl": [],
    "pools": {},
}
_PATH = re.compile(
    r"/(?:access(?:/(?:groups(?:/[\w.\-]+)?|realm(?:/[\w.\-]+)?))?|mapping(?:/[\w.\-]+)*|nodes(?:/[\w.\-]+)?"
    r"|pool(?:/[\w.\-]+){0,3}|sdn(?:/[\w.\-]+)*|storage(?:/[\w.\-]+)?|vms(?:/[0-9]{3,9})?)?",
    re.ASCII,
)


def normalise_path(path: str) -> str:
    """Normalise ``/vms//100/`` to ``/vms/100``. Anything that cannot be a path becomes ""."""
    clean = "/" + "/".join(filter(None, path.split("/")))
    return clean if re.fullmatch(r"[A-Za-z0-9._/-]+", clean) else ""


def acl_path(path: str) -> str | None:
    """Return the normalised path; None when PVE does not accept it in an access-control list."""
    clean = normalise_path(path)
    return clean if path.startswith("/") and _PATH.fullmatch(clean) else None


def owner(authid: str) -> str:
    """Return the user of a user or token id: ``ci@pve!token`` -> ``ci@pve``."""
    return authid.partition("!")[0]


def _is_valid(data: Any) -> bool:
    """Return whether a document has the structure that the code below relies on."""
    try:
        users, pools = data["users"].values(), data["pools"].values()
        tokens = [token for user in users for token in user["tokens"].values()]
        return (
            ROOT in data["users"]
            and all(isinstance(token["secret"], str) and "privsep" in token for token in tokens)
            and all({"path", "roleid", "ugid", "type", "propagate"} <= set(entry) for entry in data["acl"])
            and all(isinstance(group["users"], list) for group in data.get("groups", {}).values())
            and all(isinstance(privs, list) for privs in data["roles"].values())
            and all(isinstance(pool["vms"], list) and isinstance(pool["storage"], list) for pool in pools)
        )
    except (KeyError, TypeError, AttributeError):
        return False


class Access:
    """The access-control document. ``change()`` is the only way to write it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.RLock()
        self._copy = file.with_name(f"{file.name}.copy")
        self.data: dict[str, Any] = self._stored()

    def _stored(self) -> dict[str, Any]:
        """Return the document, or its copy if it is damaged. Raises UserError when both are."""
        damaged = []
        for place in (self.file, self._copy):
            try:
                document = json.loads(place.read_bytes())
                if not _is_valid(document):
                    raise ValueError("not a list of users, roles, rights and pools")
            except FileNotFoundError:
                continue
            except ValueError as error:
                damaged.append(f"{place} is damaged: {error}")
                continue
            if damaged:
                log.warning("%s; its copy is used", damaged[0])
            return {"groups": {}} | dict(document)  # older files have no groups
        if damaged:
            hint = f"repair one of them, or start with root@pam only: rm {self.file}*"
            raise UserError("; ".join(damaged), hint)
        return dict(json.loads(json.dumps(_EMPTY)))

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield a copy of the document to edit. It is saved if the block ends without an error."""
        with self._lock:
            draft = json.loads(json.dumps(self.data))
            yield draft
            for place in (self.file, self._copy):
                write_atomic(place, json.dumps(draft, indent=1, sort_keys=True), 0o600)
            self.data = draft

    def user(self, userid: str) -> dict[str, Any]:
        """Return a user's entry. Raises 500 with PVE's text when there is no such user."""
        try:
            entry: dict[str, Any] = self.data["users"][userid]
        except KeyError:
            raise ApiError(f"no such user ('{userid}')") from None
        return entry

    def token(self, authid: str) -> dict[str, Any] | None:
        """Return the entry of a token id such as ``ci@pve!token``; None if there is none."""
        user, _, name = authid.partition("!")
        entry: dict[str, Any] | None = self.data["users"].get(user, {}).get("tokens", {}).get(name)
        return entry

    def groups_of(self, userid: str) -> list[str]:
        """Return the groups that a user belongs to, in alphabetical order."""
        return sorted(name for name, group in self.data["groups"].items() if userid in group["users"])

    def roles(self) -> dict[str, frozenset[str]]:
        """Return all roles, including built-in ones, with their privileges."""
        return BUILTIN_ROLES | {role: frozenset(privs) for role, privs in self.data["roles"].items()}

    def pool_of(self, vmid: int) -> str | None:
        """Return the pool that a guest belongs to."""
        return next((name for name, pool in self.data["pools"].items() if vmid in pool["vms"]), None)

    def _acl_roles(self, authid: str, path: str) -> dict[str, int]:
        """Return the roles of ``authid`` on ``path``.

        Entries on a longer path replace those above them. On the same path a user's own entries replace those
        of the user's groups.
        """
        own = [a for a in self.data["acl"] if a["ugid"] == authid]
        groups = self.groups_of(authid)
        of_groups = [a for a in self.data["acl"] if a["type"] == "group" and a["ugid"] in groups]
        roles: dict[str, int] = {}
        steps = [s for s in path.split("/") if s]
        for depth in range(len(steps) + 1):
            prefix = "/" + "/".join(steps[:depth])
            is_whole = depth == len(steps)
            roles = _roles_on(own, prefix, is_whole) or _roles_on(of_groups, prefix, is_whole) or roles
        return roles

    def _pool_paths(self, path: str) -> list[str]:
        """Return the pools that pass their privileges on to ``path`` (of a guest or a storage)."""
        area, _, name = path.lstrip("/").partition("/")
        if area == "vms" and re.fullmatch(r"[0-9]{3,9}", name):
            return [f"/pool/{p}" for p, pool in self.data["pools"].items() if int(name) in pool["vms"]]
        if area == "storage" and name:
            return [f"/pool/{p}" for p, pool in self.data["pools"].items() if name in pool["storage"]]
        return []

    def _own(self, authid: str, path: str) -> dict[str, int]:
        roles = self._acl_roles(authid, path)
        for pool in self._pool_paths(path):  # a pool's privileges end at its members
            roles = dict.fromkeys(self._acl_roles(authid, pool), 0) | roles
        if "NoAccess" in roles:
            return {}
        privs: dict[str, int] = {}
        privileges_of = self.roles()
        for role, propagate in roles.items():
            for priv in privileges_of.get(role, ()):
                privs[priv] = max(propagate, privs.get(priv, 0))
        return privs

    def privileges(self, authid: str, path: str) -> dict[str, int]:
        """Return privilege -> propagate of ``authid`` on ``path``. A privsep token needs its user's, too."""
        user = owner(authid)
        of_user = dict.fromkeys(PRIVILEGES, 1) if user == ROOT else self._own(user, path)
        if "!" not in authid:
            return of_user
        token = self.token(authid)
        if token is None:  # it was removed while its request was in flight
            return {}
        if not token["privsep"]:
            return of_user
        of_token = self._own(authid, path)
        return {priv: min(flag, of_user[priv]) for priv, flag in of_token.items() if priv in of_user}

    def listed_paths(self) -> list[str]:
        """Return the paths of an overview: the top levels, those in the list, and the members of pools."""
        paths = {*TOP_PATHS, *(a["path"] for a in self.data["acl"])}
        for pool in self.data["pools"].values():
            paths |= {f"/vms/{vmid}" for vmid in pool["vms"]} | {f"/storage/{s}" for s in pool["storage"]}
        return sorted(paths)

    def overview(self, authid: str) -> dict[str, dict[str, int]]:
        """Return path -> privilege -> propagate, for paths with at least one privilege."""
        all_paths = {path: self.privileges(authid, path) for path in self.listed_paths()}
        return {path: privs for path, privs in all_paths.items() if privs}


def _roles_on(entries: list[dict[str, Any]], path: str, is_whole: bool) -> dict[str, int]:
    """Return role -> propagate of the entries on exactly ``path``; above the target only propagating ones."""
    return {
        entry["roleid"]: entry["propagate"]
        for entry in entries
        if entry["path"] == path and (entry["propagate"] or is_whole)
    }


def join_groups(draft: dict[str, Any], userid: str, names: list[str], append: bool = False) -> None:
    """Make a user a member of the groups ``names``, and unless ``append`` of no others.

    Raises:
        ApiError: a group does not exist (500, with PVE's text).
    """
    for name, group in draft["groups"].items():
        if userid in group["users"] and name not in names and not append:
            group["users"].remove(userid)
    for name in names:
        if name not in draft["groups"]:
            raise ApiError(f"no such group '{name}'")
        if userid not in draft["groups"][name]["users"]:
            draft["groups"][name]["users"].append(userid)


def grant(draft: dict[str, Any], path: str, roleid: str, ugid: str, propagate: int = 1) -> None:
    """Add an entry to the access-control list of a draft (see ``Access.change``)."""
    kind = "token" if "!" in ugid else "user" if "@" in ugid else "group"
    revoke(draft, path, roleid, ugid)
    draft["acl"].append({"path": path, "roleid": roleid, "ugid": ugid, "type": kind, "propagate": propagate})


def revoke(draft: dict[str, Any], path: str | None, roleid: str | None, ugid: str) -> None:
    """Remove the entries of ``ugid``; None stands for any path or role."""
    draft["acl"] = [
        a
        for a in draft["acl"]
        if not (a["ugid"] == ugid and path in (None, a["path"]) and roleid in (None, a["roleid"]))
    ]
