"""Wait until a lab's node has nothing else to do: what a neighbour takes would be blamed on the network.

Between trials the lab itself is idle, so what the endpoint says of a node's CPU, less that of the lab's
guests, is what others use. Waiting is bounded: a node that never becomes quiet is measured as it is, and its
trials are judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from dasklab.errors import LabError
from dasklab.machines.endpoint import Endpoint
from dasklab.machines.inventory import Inventory
from dasklab.machines.proxmox import Pve
from dasklab.terminal import clock

PATIENCE_S, ALL_PATIENCE_S = 120.0, 900.0  # before one trial, and in a whole run
LOOK_S = 5.0
APIS = ("qemu", "lxc")


class Waiter:
    """Called before each trial; returns when the node is quiet, or patience is at its end.

    Args:
        foreign_pct: the share of the node's CPU that others use; None where nobody knows.
        most_pct: quiet is what is not above this.
        announce: called with a line before waiting, and with one when that was in vain.
    """

    def __init__(
        self,
        foreign_pct: Callable[[], float | None],
        most_pct: float,
        announce: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._foreign_pct, self._most_pct = foreign_pct, most_pct
        self._announce, self._sleep = announce, sleep
        self._left_s = ALL_PATIENCE_S

    def __call__(self) -> None:
        """Wait for a quiet node."""
        if self._most_pct >= 100:
            return
        waited_s = 0.0
        while (used := self._foreign_pct()) is not None and used > self._most_pct:
            patience_s = min(PATIENCE_S, self._left_s + waited_s)
            if waited_s == 0 and patience_s > 0:
                self._announce(
                    f"Other processes use {used:.0f} % of the node's CPU: waiting up to {clock(patience_s)}"
                    f" until it is at most {self._most_pct:g} % (--no-wait does not)."
                )
            if waited_s >= patience_s:
                if waited_s:
                    self._announce(f"The node is still busy ({used:.0f} %): measuring all the same.")
                return
            self._sleep(LOOK_S)
            waited_s += LOOK_S
            self._left_s -= LOOK_S


def foreign_pct(inventory: Path) -> Callable[[], float | None]:
    """What asks an inventory's endpoint for the share of CPU that others use on the lab's busiest node."""
    lab = Inventory(inventory)
    if not lab.hosts("hypervisors"):
        return lambda: None

    @cache
    def endpoint() -> Pve:
        return Pve(Endpoint.from_inventory(lab.value(lab.hosts()[0], "proxmox")))

    def ask() -> float | None:
        with suppress(LabError):  # an endpoint that does not answer: the trial says so, with its reason
            guests = [lab.value(host, "guest") for host in lab.hosts()]
            mine = {int(guest["vmid"]) for guest in guests}
            return max(_foreign_pct(endpoint(), node, mine) for node in {guest["node"] for guest in guests})
        return None

    return ask


def _foreign_pct(pve: Pve, node: str, mine: Iterable[int]) -> float:
    status = pve.api.nodes(node).status.get()
    records = [record for api in APIS for record in pve.api.nodes(node)(api).get()]
    return outside_pct(status, [record for record in records if int(record["vmid"]) in mine])


def outside_pct(status: dict[str, Any], guests: Iterable[dict[str, Any]]) -> float:
    """The share of a node's CPU that these guests do not use, in per cent, of what is in use (pure)."""
    cpus = float(status["cpuinfo"]["cpus"])
    used = float(status["cpu"]) * cpus
    inside = sum(float(guest.get("cpu") or 0) * float(guest.get("cpus") or 1) for guest in guests)
    return 100 * max(0.0, used - inside) / cpus
