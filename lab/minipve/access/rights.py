"""The rights that a writing method needs on objects beside the one in its path, written by hand from PVE.

The schema's ``permissions`` cover the object in the path and are checked for every method. The privileges on
a guest itself depend on the options of a call; ``vm/options.py`` and ``container/options.py`` have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
_NODE, _SDN, _FIREWALL = "/nodes/{node}", "/cluster/sdn", "/cluster/firewall"
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
    f"{_FIREWALL}/groups": {"POST": ()},
    f"{_FIREWALL}/groups/{{group}}": {"POST DELETE": ()},
    f"{_FIREWALL}/groups/{{group}}/{{pos}}": {"PUT DELETE": ()},
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
for _scope in (_FIREWALL, f"{_NODE}/firewall", f"{_VM}/firewall", f"{_CT}/firewall"):
    _TABLE |= {
        f"{_scope}/options": {"PUT": ()},
        f"{_scope}/rules": {"POST": ()},
        f"{_scope}/rules/{{pos}}": {"PUT DELETE": ()},
    }
for _scope in (_FIREWALL, f"{_VM}/firewall", f"{_CT}/firewall"):  # a node has neither
    _TABLE |= {
        f"{_scope}/aliases": {"POST": ()},
        f"{_scope}/aliases/{{name}}": {"PUT DELETE": ()},
        f"{_scope}/ipset": {"POST": ()},
        f"{_scope}/ipset/{{name}}": {"POST DELETE": ()},
        f"{_scope}/ipset/{{name}}/{{cidr}}": {"PUT DELETE": ()},
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
