"""Withhold each right once: a user with all other rights must get 403 from every method that writes.

The rights on the object in the path come from the schema's ``permissions``, those on other objects from
``minipve.access.permissions``. `OBJECTS` says which object a right is about, and `REQUESTS` which parameters
make a call need it. ``test_rights.py`` and ``benchmarks/endpoint_fuzz.py`` go through all of them. No request
should get through, so the objects stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from minipve.access import permissions
from minipve.access.permissions import BESIDES_PATH, Right
from minipve.api import routing
from minipve.config.rules import schema
from minipve.config.rules.privileges import PRIVILEGES
from minipve.config.rules.schema import LXC, QEMU

from tests.contract.endpoint import Endpoint

VM, OTHER_VM, POOL_VM, CT, NEW = 8100, 8101, 8102, 8110, 8120
USER, PASSWORD = "sweeper@pve", "sweeper-secret"
PUBLIC = ("POST", "/access/ticket")
Loss = dict[str, frozenset[str]]
"""Access-control path -> privileges that the caller lacks there."""
Data = dict[str, object]

VALUES: dict[str, object] = {  # of placeholders in paths and in the schema's permissions
    "node": "pve", "vmid": VM, "newid": NEW, "pool": "sweepnew", "poolid": "sweepnew", "storage": "local",
    "volume": f"local:{OTHER_VM}/vm-{OTHER_VM}-disk-0.qcow2", "zone": "sweepa", "vnet": "sweepv",
    "subnet": "sweepa-10.6.0.0-24", "userid": "victim@pve", "tokenid": "tt", "groupid": "sweep",
    "roleid": "Nobody", "path": f"/vms/{VM}", "name": "sweep", "cidr": "10.6.0.0/24", "group": "sweep",
    "pos": 0, "iface": "vmbr9", "snapname": "one",
}  # fmt: skip

OBJECTS: dict[Right, Data] = {
    permissions.NEW_GUEST: {"vmid": NEW},
    permissions.OTHERS_DISK: {"vmid": OTHER_VM},
    permissions.IMPORTED_DISK: {"vmid": OTHER_VM},
    permissions.BRIDGE: {"zone": "localnetwork", "bridge": "vmbr0"},
    permissions.PRESENT_BRIDGE: {"zone": "localnetwork", "bridge": "vmbr0"},
    permissions.MAPPING: {"kind": "usb", "name": "stick"},
    permissions.PRESENT_POOL: {"pool": "sweepold"},
    permissions.NEW_ZONE: {"zone": "sweepb"},
}
"""Right -> values of the placeholders in its path, where they are not those in `VALUES`."""

_DISK = f"local:{OTHER_VM}/vm-{OTHER_VM}-disk-0"
_TEMPLATE = "local:vztmpl/sweep.tar.gz"
_VM_OPTIONS: dict[Right, Data] = {
    permissions.DISK_SPACE: {"scsi1": "local:0.01"},
    permissions.FILE: {"ide2": "local:iso/sweep.iso,media=cdrom"},
    permissions.OTHERS_DISK: {"scsi1": f"{_DISK}.qcow2"},
    permissions.OTHERS_STORAGE: {"scsi1": f"{_DISK}.qcow2"},
    permissions.IMPORTED_DISK: {"scsi1": f"local:0,import-from={_DISK}.qcow2"},
    permissions.BRIDGE: {"net1": "virtio,bridge=vmbr0"},
    permissions.MAPPING: {"usb0": "mapping=stick"},
    permissions.HOST_DRIVE: {"ide2": "cdrom"},
    permissions.START_ORDER: {"startup": "1"},
}
_CT_MOUNTS: dict[Right, Data] = {
    permissions.DISK_SPACE: {"mp0": "local:1,mp=/mnt"},
    permissions.OTHERS_DISK: {"mp0": f"{_DISK}.raw,mp=/mnt"},
    permissions.OTHERS_STORAGE: {"mp0": f"{_DISK}.raw,mp=/mnt"},
    permissions.BRIDGE: {"net1": "name=eth1,bridge=vmbr0"},
}
_NEW_VM: dict[Right, Data] = {
    permissions.NEW_GUEST: {},
    permissions.STARTED_GUEST: {"start": 1},
    permissions.HA: {"ha-managed": 1},
    **_VM_OPTIONS,
}
_NEW_CT: dict[Right, Data] = {
    permissions.NEW_GUEST: {},
    permissions.HOST_IDS: {"unprivileged": 0},
    permissions.HA: {"ha-managed": 1},
    permissions.FILE: {},
    **_CT_MOUNTS,
}
_POOL: dict[Right, Data] = {
    permissions.POOL_GUEST: {"vms": VM},
    permissions.POOL_STORAGE: {"storage": "local"},
    permissions.PRESENT_POOL: {"vms": POOL_VM, "allow-move": 1},
}


def _for(data: Data, *of: Right) -> dict[Right, Data]:
    return dict.fromkeys(of, data)


_EACH: dict[Right, Data] = {permissions.EACH_GUEST: {"vms": VM}}
_NODE = "/nodes/{node}"
REQUESTS: dict[str, dict[Right, Data]] = {  # path -> right -> parameters of a call that needs it
    "/pools": {right: data | {"poolid": "sweepnew"} for right, data in _POOL.items()},
    "/pools/{poolid}": _POOL,
    "/cluster/sdn/vnets/{vnet}": {permissions.NEW_ZONE: {"zone": "sweepb"}},
    "/cluster/sdn/vnets/{vnet}/subnets": {permissions.VNET: {"subnet": "10.7.0.0/24", "type": "subnet"}},
    f"{_NODE}/startall": _EACH,
    f"{_NODE}/stopall": _EACH,
    f"{_NODE}/storage/{{storage}}/content": _for(
        {"vmid": OTHER_VM, "filename": f"vm-{OTHER_VM}-disk-9.qcow2", "size": "1M"},
        permissions.OTHERS_DISK,
        permissions.OTHERS_STORAGE,
    ),
    f"{_NODE}/qemu": {right: data | {"vmid": NEW} for right, data in _NEW_VM.items()},
    f"{QEMU.path}/config": _VM_OPTIONS,
    f"{QEMU.path}/clone": _for({"newid": NEW}, permissions.BRIDGE, permissions.DISK_SPACE),
    f"{QEMU.path}/migrate": _for(
        {"target": "pve2", "targetstorage": "local"}, permissions.MOVED_DISKS, permissions.DISK_SPACE
    ),
    f"{QEMU.path}/monitor": {permissions.MONITOR: {"command": "stop"}},
    f"{QEMU.path}/move_disk": {permissions.DISK_SPACE: {"disk": "scsi0", "storage": "local"}},
    f"{QEMU.path}/resize": {permissions.DISK_SPACE: {"disk": "scsi0", "size": "+1M"}},
    f"{QEMU.path}/snapshot/{{snapname}}/rollback": {permissions.STARTED_GUEST: {"start": 1}},
    f"{QEMU.path}/unlink": {permissions.DISK_SPACE: {"idlist": "unused0"}},
    f"{_NODE}/lxc": {right: {"vmid": NEW, "ostemplate": _TEMPLATE} | data for right, data in _NEW_CT.items()},
    f"{LXC.path}/config": _CT_MOUNTS | {permissions.PRESENT_BRIDGE: {"net0": "name=eth0,bridge=vmbr1"}},
    f"{LXC.path}/clone": _for({"newid": NEW}, permissions.BRIDGE, permissions.DISK_SPACE),
    f"{LXC.path}/resize": {permissions.DISK_SPACE: {"disk": "rootfs", "size": "2G"}},
}


@dataclass(frozen=True)
class Case:
    """A call, and what its caller lacks."""

    verb: str
    path: str
    data: Mapping[str, object]
    loss: Loss

    def __str__(self) -> str:
        lacking = " and ".join(f"{'|'.join(sorted(privs))} on {path}" for path, privs in self.loss.items())
        return f"{self.verb} {self.path} without {lacking}"


def writing_methods() -> list[tuple[str, str]]:
    """Return the methods that write: verb and path template."""
    return sorted(key for key in routing.load() if key[0] != "GET")


def _filled(template: str, values: Mapping[str, object]) -> str:
    return re.sub(r"{([^}]+)}", lambda match: str(values[match[1]]), template)


def _values_for(path: str) -> dict[str, object]:
    return VALUES | ({"vmid": CT} if path.startswith(LXC.path) else {})


def cases_of_schema(verb: str, path: str) -> Iterator[Case]:
    """Yield a case for each right that the published schema requires."""
    permissions = schema.method(verb, path).permissions or {}
    if "check" not in permissions:
        return
    values = _values_for(path)
    in_rule = {name for name in re.findall(r"{(\w+)}", str(permissions)) if f"{{{name}}}" not in path}
    data = {name: values[name] for name in sorted(in_rule) if name != "userid"}
    if "userid-param" in str(permissions) and "{userid}" not in path:
        data["userid"] = values["userid"]
    for loss in _losses(permissions["check"], values):
        yield Case(verb, path, data, loss)


def _losses(rule: list[Any], values: Mapping[str, object]) -> list[Loss]:
    """Return what may be withheld so that the rule fails, one right at a time if one is enough."""
    kind, *rest = rule
    if kind == "and":
        return [loss for part in rest for loss in _losses(part, values)]
    if kind == "or":  # all parts must fail
        parts = [_losses(part, values) for part in rest]
        return [
            _joined([part[min(number, len(part) - 1)] for part in parts])
            for number in range(max(map(len, parts)))
        ]
    if kind == "perm":
        path = _filled(rest[0], values)
        return [{path: frozenset(rest[1])}] if "any" in rest else [{path: frozenset([p])} for p in rest[1]]
    if kind == "perm-modify":
        return [{_filled(rest[0], values): frozenset({"Permissions.Modify", "VM.Allocate"})}]
    if kind == "userid-group":
        return [{"/access/groups": frozenset(rest[0])}]
    assert kind == "userid-param", rule
    return [{}] if rest[0] == "self" else [{"/access/realm/pve": frozenset([rest[0]])}]


def _joined(losses: list[Loss]) -> Loss:
    joined: Loss = {}
    for loss in losses:
        for path, privileges in loss.items():
            joined[path] = joined.get(path, frozenset()) | privileges
    return joined


def cases_of_table(verb: str, path: str) -> Iterator[Case]:
    """Yield a case for each right of the table."""
    for right in BESIDES_PATH[verb, path]:
        names = _values_for(path) | OBJECTS.get(right, {})
        data = REQUESTS.get(path, {}).get(right, {})
        if right is permissions.STARTED_GUEST and "vmid" in data:
            names["vmid"] = data["vmid"]
        lacking = frozenset((*right.privileges, *right.instead)) if right.any_of else {*right.privileges}
        loss = {_filled(right.path, names): frozenset(lacking)}
        yield Case(verb, path, data, loss | ({"/": loss_of_all} if (loss_of_all := _on_root(right)) else {}))


def _on_root(right: Right) -> frozenset[str]:
    """Return privileges that are enough on ``/``, too."""
    return frozenset(right.privileges if right is permissions.EACH_GUEST else ())


def cases() -> list[Case]:
    """Return all cases of all methods that write."""
    return [
        case
        for method in writing_methods()
        for cases_of in (cases_of_schema, cases_of_table)
        for case in cases_of(*method)
    ]


@dataclass
class Sweeper:
    """The objects of all cases on an endpoint of two nodes, and the user whose rights are withheld."""

    endpoint: Endpoint
    upid: str = ""
    entries: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.endpoint.root()
        self._create_guests()
        self._create_others()
        login = {"username": USER, "password": PASSWORD}
        ticket = self.endpoint.request("POST", "/access/ticket", {}, data=login).json()["data"]
        self.headers = {
            "Cookie": f"PVEAuthCookie={ticket['ticket']}",
            "CSRFPreventionToken": ticket["CSRFPreventionToken"],
        }

    def _create_guests(self) -> None:
        post = self.root.nodes("pve").qemu.post
        for vmid in (VM, OTHER_VM):
            options = {"scsi0": "local:0.01", "net0": "virtio,bridge=vmbr0", "memory": 32, "kvm": 0}
            self.upid = post(vmid=vmid, **options)
            self.endpoint.done(self.upid, self.root)
        self.root.pools.post(poolid="sweepold")
        self.root.pools.post(poolid="sweepnew")
        self.endpoint.done(post(vmid=POOL_VM, memory=32, kvm=0, pool="sweepold"), self.root)
        assert self.endpoint.state is not None
        options = {"hostname": "sweep", "net0": "name=eth0,bridge=vmbr0", "unprivileged": "1"}
        options["rootfs"] = f"local:{CT}/vm-{CT}-disk-0.raw,size=1G"
        lines = [f"{key}: {value}\n" for key, value in options.items()]
        (self.endpoint.state / f"etc/pve/lxc/{CT}.conf").write_text("".join(lines))

    def _create_others(self) -> None:
        for zone in ("sweepa", "sweepb"):
            self.root.cluster.sdn.zones.post(zone=zone, type="simple")
        self.root.cluster.sdn.vnets.post(vnet="sweepv", zone="sweepa")
        self.root.cluster.sdn.vnets("sweepv").subnets.post(subnet="10.6.0.0/24", type="subnet")
        for userid in (USER, "victim@pve"):
            self.root.access.users.post(userid=userid, password=PASSWORD)
        for number in range(3):
            self.root.access.roles.post(roleid=f"Sweep{number}", privs="")

    def withhold(self, loss: Loss) -> None:
        """Give the user all privileges except those of ``loss``."""
        for path, role in self.entries.items():
            self.root.access.acl.put(path=path, users=USER, roles=role, delete=1)
        self.entries.clear()
        for number, (path, lost) in enumerate(({"/": frozenset()} | loss).items()):
            self.entries[path] = f"Sweep{number}"
            self.root.access.roles(f"Sweep{number}").put(privs=",".join(sorted(PRIVILEGES - lost)))
            self.root.access.acl.put(path=path, users=USER, roles=f"Sweep{number}")

    def fault(self, case: Case) -> str | None:
        """Return what is wrong with the answer to a case; None if it is refused for the right that lacks."""
        self.withhold(case.loss)
        path = _filled(case.path, _values_for(case.path) | {"upid": self.upid})
        place = {"params" if case.verb == "DELETE" else "data": case.data}
        answer = self.endpoint.request(case.verb, path, self.headers, **place)
        text = f"{answer.status_code} {answer.reason} {answer.text}"
        if answer.status_code == 200 and str(answer.json()["data"]).startswith("UPID:"):
            text += " " + self.endpoint.wait(answer.json()["data"], self.root)["exitstatus"]
        refused = "403 Permission check failed" in text
        named = "check failed (" not in text or any(f"check failed ({path}, " in text for path in case.loss)
        return None if refused and named else f"{case}: {' '.join(text.split())}"

    def faults(self) -> list[str]:
        """Withhold each right once, and return the faults."""
        return [fault for case in cases() if (fault := self.fault(case))]
