"""One instance put together: the parts that a handler works with, and the context of one call."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from lab.minipve.access.accounts import Access
from lab.minipve.access.permit import Permit
from lab.minipve.access.tickets import Tickets
from lab.minipve.config.kinds import LXC, QEMU, Kind
from lab.minipve.config.store import GuestConfig, GuestStore
from lab.minipve.errors import ApiError
from lab.minipve.history import History
from lab.minipve.image.storage import Storage
from lab.minipve.network.sdn import Sdn
from lab.minipve.paths import Paths
from lab.minipve.tasks import Tasks, Work

NAME = "pve"
VERSION = {"version": "9.1.2", "release": "9.1", "repoid": "minipve"}


class Node:
    """The one node of an instance: its files, VMs, storage, tasks and access control."""

    def __init__(self, paths: Paths, name: str = NAME) -> None:
        cluster = paths.state / "etc" / "pve"
        self.paths = paths
        self.name = name
        self.cluster = cluster
        self.access = Access(cluster / "access.json")
        self.sdn = Sdn(cluster / "sdn.json")
        self.tickets = Tickets(self.access, cluster / "authkey")
        self.tasks = Tasks(paths.log / "tasks", name)
        self.vms = GuestStore(cluster, paths.run / "lock", name, QEMU)
        self.containers = GuestStore(cluster, paths.run / "lock", name, LXC)
        self.storage = Storage(paths.state / "storage")
        self.history = History()
        self.network_lock = threading.Lock()

    def store(self, kind: Kind) -> GuestStore:
        """The configurations of one kind of guest."""
        return {QEMU: self.vms, LXC: self.containers}[kind]

    def vmids(self) -> list[int]:
        """All VMIDs in use, ascending."""
        return sorted([*self.vms.vmids(), *self.containers.vmids()])

    def guests(self) -> list[tuple[int, GuestConfig]]:
        """Every guest of either kind, by VMID."""
        return sorted([*self.vms.all(), *self.containers.all()], key=lambda guest: guest[0])


@dataclass(frozen=True)
class Call:
    """One authenticated, permitted and validated call: what a handler gets."""

    node: Node
    permit: Permit
    given: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter, or ``default`` when the caller left it out."""
        return self.given.get(name, default)

    @property
    def vmid(self) -> int:
        """The VM that the path names."""
        return int(self.given["vmid"])

    @property
    def options(self) -> dict[str, Any]:
        """The parameters without those of the path; ``cdrom`` by its name in the configuration."""
        found = {key: value for key, value in self.given.items() if key not in ("node", "vmid")}
        if "cdrom" in found:
            if "ide2" in found:
                raise ApiError("option ide2 conflicts with cdrom")
            found["ide2"] = f"{found.pop('cdrom')},media=cdrom"
        return found

    def start(self, kind: str, name: object, work: Work) -> str:
        """Start a task in the caller's name; returns its UPID."""
        return self.node.tasks.start(kind, str(name), self.permit.authid, work)


@dataclass(frozen=True)
class Reply:
    """An answer with more at its top level than ``data`` (``total`` of logs, ``changes`` of the network)."""

    data: Any
    extra: dict[str, Any]
