"""Sample the load of node, storage and guests once a minute, under the keys of PVE's RRD files."""

from __future__ import annotations

import os

from minipve.base import host
from minipve.guests.rows import guest_row
from minipve.node.node import Node

_GUEST = ("maxmem", "maxdisk", "disk")
_RUNNING = ("cpu", "mem", "memhost", *host.PRESSURES)


def sample(node: Node, now: float) -> None:
    memory, swap, root, usage = host.memory(), host.swap(), host.root_filesystem(), node.storage.usage()
    load = {"loadavg": os.getloadavg()[0], "cpu": host.cpu_fraction(), "maxcpu": host.cpus()}
    load |= {"memtotal": memory["total"], "memused": memory["used"], "memavailable": memory["available"]}
    load |= {"swaptotal": swap["total"], "swapused": swap["used"]}
    node.history.add(now, "node", load | {"roottotal": root["total"], "rootused": root["used"]})
    node.history.add(now, "storage", {"total": usage["total"], "used": usage["used"]})
    names = {"node", "storage"}
    for vmid, config in node.guests():
        row, name = guest_row(node, vmid, config), f"{config.kind.name}/{vmid}"
        keys = _GUEST + (_RUNNING if "pid" in row else ())
        traffic = {key: row[key] for key in ("netin", "netout")} if "pid" in row else {}
        node.history.add(
            now,
            name,
            {key: row[key] for key in keys if row.get(key) is not None} | {"maxcpu": row["cpus"]},
            traffic,
        )
        names.add(name)
    node.history.keep(names)
