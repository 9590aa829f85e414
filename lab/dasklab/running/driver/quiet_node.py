"""Wait until other processes leave a lab's node alone, because their load would be blamed on the network.

The endpoint reports the CPU use of a node and of each guest since its last answer. The use of the node minus
that of the lab's guests is foreign load. We ask twice, because the first answer includes the lab's own last
trial. Waiting is bounded: on a node that never becomes quiet the trial runs anyway. Its validity is judged
afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.terminal import duration

PATIENCE_S, RUN_PATIENCE_S = 120.0, 900.0  # before one trial, and in a whole run
POLL_S = 5.0
SAMPLE_S = 2.0  # over which the load is measured
APIS = ("qemu", "lxc")


class Waiter:
    """Called before each trial. Returns when the node is quiet, or after waiting long enough.

    Args:
        foreign_pct: returns the share of the node's CPU that others use, or None if it is unknown.
        max_pct: the node is quiet if foreign load is at most this. With 100 there is no waiting.
        announce: called with a line of text before waiting, and when the node is still busy after it.
        sleep: replaced by tests.
    """

    def __init__(
        self,
        foreign_pct: Callable[[], float | None],
        max_pct: float,
        announce: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._foreign_pct, self._max_pct = foreign_pct, max_pct
        self._announce, self._sleep = announce, sleep
        self._left_s = RUN_PATIENCE_S

    def __call__(self) -> None:
        if self._max_pct >= 100:
            return
        waited_s = 0.0
        while (used := self._foreign_pct()) is not None and used > self._max_pct:
            patience_s = min(PATIENCE_S, self._left_s + waited_s)
            if waited_s == 0 and patience_s > 0:
                self._announce(
                    f"Other processes use {used:.0f} % of the node's CPU. Waiting up to"
                    f" {duration(patience_s)} until it is at most {self._max_pct:g} % (--no-wait skips this)."
                )
            if waited_s >= patience_s:
                if waited_s:
                    self._announce(f"The node is still busy ({used:.0f} %). Running the trial anyway.")
                return
            self._sleep(POLL_S)
            waited_s += POLL_S
            self._left_s -= POLL_S


def foreign_pct(inventory: Path) -> Callable[[], float | None]:
    """Return a function that measures the foreign load, in percent of its CPU, of the lab's busiest node."""
    lab = Inventory(inventory)
    if not lab.hosts("hypervisors"):
        return lambda: None

    @cache
    def endpoint() -> Pve:
        return Pve(Endpoint.from_inventory(lab.value(lab.hosts()[0], "proxmox")))

    def measure() -> float | None:
        with suppress(LabError):  # the endpoint does not answer; the trial will report why
            guests = [lab.value(host, "guest") for host in lab.hosts()]
            vmids = {int(guest["vmid"]) for guest in guests}
            nodes = {guest["node"] for guest in guests}
            for node in nodes:
                _foreign_pct(endpoint(), node, vmids)
            time.sleep(SAMPLE_S)
            return max(_foreign_pct(endpoint(), node, vmids) for node in nodes)
        return None

    return measure


def _foreign_pct(pve: Pve, node: str, lab_vmids: Iterable[int]) -> float:
    status = pve.api.nodes(node).status.get()
    records = [record for api in APIS for record in pve.api.nodes(node)(api).get()]
    return outside_pct(status, [record for record in records if int(record["vmid"]) in lab_vmids])


def outside_pct(status: dict[str, Any], guests: Iterable[dict[str, Any]]) -> float:
    """Return the CPU use of a node minus that of these guests, in percent of the node's CPU. Pure."""
    cpus = float(status["cpuinfo"]["cpus"])
    used = float(status["cpu"]) * cpus
    inside = sum(float(guest.get("cpu") or 0) * float(guest.get("cpus") or 1) for guest in guests)
    return 100 * max(0.0, used - inside) / cpus
