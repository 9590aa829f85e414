"""The nodes of an instance, and the state that they share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from ipaddress import ip_interface

from minipve.access.accounts import Access
from minipve.access.tickets import Tickets
from minipve.base.paths import Paths
from minipve.config.rules.schema import LXC, QEMU, Kind
from minipve.config.store import GuestConfig, GuestStore
from minipve.network import interfaces, namespace
from minipve.network.sdn import Sdn
from minipve.node.history import History
from minipve.node.tasks import Tasks
from minipve.storage.directory import Storage

NAME = "pve"
VERSION = {"version": "9.1.2", "release": "9.1", "repoid": "6d696e69707665"}


class Node:
    """A node: its files, guests, storage, tasks and network, and the state that the whole cluster shares.

    Clients talk to the ``first`` node. The others are additional network namespaces of the same instance.
    """

    def __init__(self, paths: Paths, name: str = NAME, first: Node | None = None) -> None:
        self.paths = paths
        self.name = name
        self.first = first = first or self
        if first is self:
            self.cluster = paths.state / "etc" / "pve"
            self.access = Access(self.cluster / "access.json")
            self.sdn = Sdn(self.cluster / "sdn.json")
            self.tickets = Tickets(self.access, self.cluster / "authkey")
            self.nodes: dict[str, Node] = {}
            self.homes = {name: self.cluster}
        else:
            self.cluster, self.access, self.sdn = first.cluster, first.access, first.sdn
            self.tickets, self.nodes, self.homes = first.tickets, first.nodes, first.homes
            self.homes[name] = self.cluster / "nodes" / name
        self.nodes[name] = self
        self.tasks = Tasks(paths.log / "tasks", name, self.enter)
        locks = first.paths.run / "lock"
        self.vms = GuestStore(self.homes, locks, name, QEMU)
        self.containers = GuestStore(self.homes, locks, name, LXC)
        self.storage = Storage(paths.state / "storage")
        self.history = History()
        self.network_lock = threading.Lock()
        self.network: int | None = None
        """File descriptor of the namespace in which its threads run; None for a node without others."""

    @property
    def is_up(self) -> bool:
        """Whether the node answers. The first one always does."""
        return not self.paths.down.exists()

    @property
    def is_quorate(self) -> bool:
        """Whether more than half of the cluster's nodes are up."""
        return 2 * sum(node.is_up for node in self.nodes.values()) > len(self.nodes)

    @property
    def address(self) -> str:
        """The node's address in the cluster."""
        addresses = (i.address for i in interfaces.load(self.paths.interfaces).values() if i.address)
        return next((str(ip_interface(address).ip) for address in addresses), "")

    def enter(self) -> None:
        """Move the calling thread, and the programs that it starts, into the node's network."""
        if self.network is not None:
            namespace.enter(self.network)

    def visit(self) -> Iterator[Node]:
        """Yield every node of the cluster, with the calling thread in that node's network."""
        try:
            for node in list(self.nodes.values()):
                node.enter()
                yield node
        finally:
            self.enter()

    def store(self, kind: Kind) -> GuestStore:
        """Return the store of a kind of guest."""
        return {QEMU: self.vms, LXC: self.containers}[kind]

    def vmids(self) -> list[int]:
        """Return all VMIDs in use in the cluster, ascending."""
        stores = (store for node in self.nodes.values() for store in (node.vms, node.containers))
        return sorted(vmid for store in stores for vmid in store.vmids())

    def guests(self) -> list[tuple[int, GuestConfig]]:
        """Return the guests of both kinds on this node, ordered by VMID."""
        return sorted([*self.vms.all(), *self.containers.all()], key=lambda guest: guest[0])
