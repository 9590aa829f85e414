"""The methods of Proxmox VE's API that minipve has, refuses and lacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from minipve.api.coverage import HERE, MISSING, REFUSED, methods, reason, status
from minipve.config.rules import schema

_AREAS = (
    (
        r"/ceph|/firewall|/acme|/disks|/replication|/backup|/vzdump|/ha/|/mapping",
        "areas that minipve does not have",
    ),
    (r"^/access", "users, groups, roles, tokens, permissions"),
    (r"/sdn", "SDN: zones, vnets, subnets"),
    (r"/qemu/{vmid}/agent", "guest agent"),
    (r"/qemu/{vmid}/snapshot", "snapshots of VMs"),
    (r"/qemu", "VMs"),
    (r"/lxc", "containers"),
    (r"/storage", "storage"),
    (r"/network", "bridges of a node"),
    (r"/tasks", "tasks"),
    (r"^/pools", "pools"),
    (r"^/nodes", "nodes"),
    (r"^/", "cluster, version"),
)
"""Pattern in a path -> the area in the summary; the first match counts."""


def version() -> str:
    """Name the version whose methods are listed."""
    source = schema.source().rpartition("-")[2]
    return f"The methods are those of Proxmox VE {source}."


def summary() -> str:
    """Return a Markdown table with the number of methods by area."""
    counts: dict[str, Counter[str]] = {}
    for verb, path in methods():
        counts.setdefault(_area(path), Counter())[status(verb, path)] += 1
    order = [name for _, name in _AREAS]
    rows = [f"| {area} | {_numbers(counts[area])} |" for area in (*order[1:], order[0])]
    total = sum(counts.values(), Counter[str]())
    head = ["| area | here | refused | missing |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, f"| all of Proxmox VE | {_numbers(total)} |"])


def _numbers(count: Counter[str]) -> str:
    return " | ".join(str(count[key]) for key in (HERE, REFUSED, MISSING))


def here() -> str:
    """List the methods that minipve has."""
    return _table(("path", "methods"), _rows(HERE))


def refused() -> str:
    """List the methods that minipve refuses, with the reason."""
    rows = [(path, verbs, reason(path.strip("`")) or "") for path, verbs in _rows(REFUSED)]
    return _table(("path", "methods", "reason"), rows)


def missing() -> str:
    """List the methods that minipve lacks."""
    return _table(("path", "methods"), _rows(MISSING))


def _rows(kind: str) -> list[tuple[str, str]]:
    verbs: dict[str, list[str]] = {}
    for verb, path in methods():
        if status(verb, path) == kind:
            verbs.setdefault(path, []).append(verb)
    return [(f"`{path}`", ", ".join(sorted(verbs[path]))) for path in sorted(verbs)]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(heads)}", *lines[1:]])


def _area(path: str) -> str:
    return next(name for pattern, name in _AREAS if re.search(pattern, path))
