"""Permission checks of a call: from the schema, from handlers, and on objects beside the path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from minipve.access.accounts import ROOT, Access, normalise_path
from minipve.base.errors import ApiError, denied, parameter_error
from minipve.config.rules.formats import split_list

# The rights that a writing method needs on objects beside the one in its path, written by hand from PVE.
#
# The schema's `permissions` cover the object in the path and are checked for every method. The privileges
# on
# a guest itself depend on the options of a call; `vm/options.py` and `container/options.py` have them.


@dataclass(frozen=True)
class Right:
    """Privileges on an object that a call uses or changes."""

    what: str
    """The object, and when a call needs the right."""

    path: str
    """Template of the object's access-control path."""

    privileges: tuple[str, ...]
    any_of: bool = False
    """Whether one of the privileges is enough."""

    instead: tuple[str, ...] = ()
    """Privileges that are enough, too, and that PVE's error does not name."""


NEW_GUEST = Right("the VMID of a new guest, unless its pool has the right", "/vms/{vmid}", ("VM.Allocate",))
STARTED_GUEST = Right("a guest that starts after the call", "/vms/{vmid}", ("VM.PowerMgmt",))
EACH_GUEST = Right("each selected guest, unless / has the right", "/vms/{vmid}", ("VM.PowerMgmt",))
DISK_SPACE = Right("the storage of a disk", "/storage/{storage}", ("Datastore.AllocateSpace",))
MOVED_DISKS = Right("a VM whose disks change their storage", "/vms/{vmid}", ("VM.Config.Disk",))
FILE = Right(
    "the storage of an image or template",
    "/storage/{storage}",
    ("Datastore.AllocateSpace", "Datastore.Audit"),
    any_of=True,
    instead=("Datastore.Allocate",),
)
OTHERS_DISK = Right("the guest of a disk, if it is another one", "/vms/{vmid}", ("VM.Config.Disk",))
OTHERS_STORAGE = Right("the storage of another guest's disk", "/storage/{storage}", ("Datastore.Audit",))
IMPORTED_DISK = Right("the VM whose disk is imported", "/vms/{vmid}", ("VM.Clone",))
REMOVED_VOLUME = Right("the storage of a removed volume", "/storage/{storage}", ("Datastore.Allocate",))
BRIDGE = Right("the bridge (and tag) of a NIC", "/sdn/zones/{zone}/{bridge}", ("SDN.Use",))
PRESENT_BRIDGE = Right("the bridge that a NIC leaves", "/sdn/zones/{zone}/{bridge}", ("SDN.Use",))
MAPPING = Right("a mapped device", "/mapping/{kind}/{name}", ("Mapping.Use",))
HOST_DRIVE = Right("the node's own CD drive", "/", ("Sys.Console",))
HA = Right("the cluster's HA manager", "/", ("Sys.Console",))
START_ORDER = Right("the order in which all guests start", "/", ("Sys.Modify",))
HOST_IDS = Right("the node, on which a privileged container is root", "/", ("Sys.Modify",))
MONITOR = Right("the machine's monitor, for a command that changes something", "/", ("Sys.Modify",))
OTHERS_TASK = Right("the node of another user's task", "/nodes/{node}", ("Sys.Modify",))
POOL_GUEST = Right(
    "a guest that joins or leaves a pool", "/vms/{vmid}", ("Permissions.Modify", "VM.Allocate"), any_of=True
)
POOL_STORAGE = Right(
    "a storage that joins or leaves a pool",
    "/storage/{storage}",
    ("Permissions.Modify", "Datastore.Allocate"),
    any_of=True,
)
PRESENT_POOL = Right("the pool that a guest leaves for another one", "/pool/{pool}", ("Pool.Allocate",))
VNET = Right("a vnet, whose path contains its zone", "/sdn/zones/{zone}/{vnet}", ("SDN.Allocate",))
NEW_ZONE = Right("the zone that a vnet moves to", "/sdn/zones/{zone}", ("SDN.Allocate",))

Rights = tuple[Right, ...]
_VOLUMES: Rights = (DISK_SPACE, FILE, OTHERS_DISK, OTHERS_STORAGE)
_VM_OPTIONS: Rights = (*_VOLUMES, IMPORTED_DISK, BRIDGE, MAPPING, HOST_DRIVE, START_ORDER)
_NODE, _SDN = "/nodes/{node}", "/cluster/sdn"
_VM, _CT = f"{_NODE}/qemu/{{vmid}}", f"{_NODE}/lxc/{{vmid}}"
_VNET, _STORAGE = f"{_SDN}/vnets/{{vnet}}", f"{_NODE}/storage/{{storage}}"

_TABLE: dict[str, dict[str, Rights]] = {  # path -> verbs -> rights
    "/access/acl": {"PUT": ()},
    "/access/groups": {"POST": ()},
    "/access/groups/{groupid}": {"PUT DELETE": ()},
    "/access/password": {"PUT": ()},
    "/access/roles": {"POST": ()},
    "/access/roles/{roleid}": {"PUT DELETE": ()},
    "/access/ticket": {"POST": ()},
    "/access/users": {"POST": ()},
    "/access/users/{userid}": {"PUT DELETE": ()},
    "/access/users/{userid}/token/{tokenid}": {"POST PUT DELETE": ()},
    "/pools": {"POST DELETE": (), "PUT": (POOL_GUEST, POOL_STORAGE, PRESENT_POOL)},
    "/pools/{poolid}": {"DELETE": (), "PUT": (POOL_GUEST, POOL_STORAGE, PRESENT_POOL)},
    _SDN: {"PUT": ()},
    f"{_SDN}/lock": {"POST DELETE": ()},
    f"{_SDN}/rollback": {"POST": ()},
    f"{_SDN}/zones": {"POST": ()},
    f"{_SDN}/zones/{{zone}}": {"PUT DELETE": ()},
    f"{_SDN}/vnets": {"POST": ()},
    _VNET: {"PUT": (VNET, NEW_ZONE), "DELETE": (VNET,)},
    f"{_VNET}/subnets": {"POST": (VNET,)},
    f"{_VNET}/subnets/{{subnet}}": {"PUT DELETE": (VNET,)},
    f"{_NODE}/config": {"PUT": ()},
    f"{_NODE}/dns": {"PUT": ()},
    f"{_NODE}/time": {"PUT": ()},
    f"{_NODE}/status": {"POST": ()},
    f"{_NODE}/network": {"POST PUT DELETE": ()},
    f"{_NODE}/network/{{iface}}": {"PUT DELETE": ()},
    f"{_NODE}/startall": {"POST": (EACH_GUEST,)},
    f"{_NODE}/stopall": {"POST": (EACH_GUEST,)},
    f"{_NODE}/tasks/{{upid}}": {"DELETE": (OTHERS_TASK,)},
    f"{_STORAGE}/content": {"POST": (OTHERS_DISK, OTHERS_STORAGE)},
    f"{_STORAGE}/content/{{volume}}": {"DELETE": (REMOVED_VOLUME, OTHERS_DISK, OTHERS_STORAGE)},
    f"{_STORAGE}/download-url": {"POST": ()},
    f"{_STORAGE}/upload": {"POST": ()},
    f"{_NODE}/qemu": {"POST": (NEW_GUEST, STARTED_GUEST, HA, *_VM_OPTIONS)},
    _VM: {"DELETE": ()},
    f"{_VM}/config": {"POST PUT": _VM_OPTIONS},
    f"{_VM}/clone": {"POST": (BRIDGE, DISK_SPACE)},
    f"{_VM}/cloudinit": {"PUT": ()},
    f"{_VM}/migrate": {"POST": (MOVED_DISKS, DISK_SPACE)},
    f"{_VM}/monitor": {"POST": (MONITOR,)},
    f"{_VM}/move_disk": {"POST": (DISK_SPACE,)},
    f"{_VM}/resize": {"PUT": (DISK_SPACE,)},
    f"{_VM}/sendkey": {"PUT": ()},
    f"{_VM}/snapshot": {"POST": ()},
    f"{_VM}/snapshot/{{snapname}}": {"DELETE": ()},
    f"{_VM}/snapshot/{{snapname}}/config": {"PUT": ()},
    f"{_VM}/snapshot/{{snapname}}/rollback": {"POST": (STARTED_GUEST,)},
    f"{_VM}/template": {"POST": ()},
    f"{_VM}/unlink": {"PUT": (DISK_SPACE,)},
    f"{_NODE}/lxc": {"POST": (NEW_GUEST, HOST_IDS, HA, *_VOLUMES, BRIDGE)},
    _CT: {"DELETE": ()},
    f"{_CT}/config": {"PUT": (DISK_SPACE, OTHERS_DISK, OTHERS_STORAGE, BRIDGE, PRESENT_BRIDGE)},
    f"{_CT}/clone": {"POST": (BRIDGE, DISK_SPACE)},
    f"{_CT}/resize": {"PUT": (DISK_SPACE,)},
    f"{_CT}/snapshot": {"POST": ()},
    f"{_CT}/template": {"POST": ()},
}
_FREEZE = ("fsfreeze-freeze", "fsfreeze-status", "fsfreeze-thaw")
for _action in ("exec", "file-write", *_FREEZE, "fstrim", "ping", "shutdown"):
    _TABLE[f"{_VM}/agent/{_action}"] = {"POST": ()}
for _guest in (_VM, _CT):
    for _action in ("reboot", "resume", "shutdown", "start", "stop", "suspend"):
        _TABLE[f"{_guest}/status/{_action}"] = {"POST": ()}
_TABLE[f"{_VM}/status/reset"] = {"POST": ()}

BESIDES_PATH: Mapping[tuple[str, str], Rights] = {
    (verb, path): rights
    for path, by_verbs in _TABLE.items()
    for verbs, rights in by_verbs.items()
    for verb in verbs.split()
}
"""(verb, path template) -> the rights that the call may need. Every writing method has an entry."""


# Permission checks of a call, from the schema and from handlers, with PVE's 403 texts.

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
