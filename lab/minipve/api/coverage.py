"""The methods of Proxmox VE's API by status: minipve has them (here), refuses them, or lacks them (missing).

``python -m minipve.api.coverage`` prints the page docs/reference/minipve-methods.md; with ``--summary``,
only the summary table of that page. PVE's methods come from ``schema.json``, and minipve's from the handlers.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

from minipve.api import routing as api
from minipve.config.rules import schema

PAGE = "docs/reference/minipve-methods.md"
HERE, REFUSED, MISSING = "here", "refused", "missing"
_REASONS = (
    (r".*/ceph(/.*)?", "there is no Ceph"),
    (r"/cluster/acme(/.*)?|.*/certificates(/.*)?", "minipve creates its certificate itself"),
    (r".*/(vnc|term|spice)(proxy|shell|websocket)|/access/vncticket", "there are no consoles"),
    (
        r".*/((remote_)?migrate|mtunnel(websocket)?|dbus-vmstate|migrateall)",
        "only stopped VMs are migrated",
    ),
    (r".*/(vzdump|prunebackups|file-restore)(/.*)?|/cluster/backup(-info)?(/.*)?", "there are no backups"),
    (r"/cluster/ha/.*", "there is no HA manager"),
    (r".*/replication(/.*)?", "there is no replication"),
    (r"/cluster/mapping(/.*)?|.*/(disks|hardware|scan)(/.*)?", "the hardware of this machine is not managed"),
    (r".*/(apt|hosts|subscription|services/.*)(/.*)?", "the system of this machine is not managed"),
    (r".*/(report|syslog|journal|netstat|execute|wakeonlan)", "the system of this machine is not managed"),
    (r"/access/(tfa|openid)(/.*)?|.*/(unlock-)?tfa", "there are no second factors"),
    (r"/access/domains(/.*)?", "the realms are pam and pve"),
    (r"/cluster/(metrics|notifications|jobs)(/.*)?", "there are no metric servers, notifications and jobs"),
    (r"/cluster/config(/.*)?", "the nodes are chosen at the first start"),
    (r".*/sdn/(controllers|fabrics|ipams|dns)(/.*)?", "zones have the types simple and vxlan"),
    (r".*/sdn/.*/(ips|ip-vrf|mac-vrf)", "zones have the types simple and vxlan"),
    (r"/storage(/.*)?", "the only storage is local"),
    (r".*/suspendall|.*/agent/suspend-.*", "guests are not suspended to disk"),
)
"""Pattern of a path -> why minipve does not have its methods. All others without a handler are missing."""


_AREAS = (
    (
        r"/ceph|/acme|/disks|/replication|/backup|/vzdump|/ha/|/mapping",
        "areas that minipve does not have",
    ),
    (r"^/access", "users, groups, roles, tokens, permissions"),
    (r"/firewall", "firewall (stored, not applied)"),
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


def methods() -> Iterator[tuple[str, str]]:
    """Yield the verb and the path template of each method of Proxmox VE."""
    yield from api.load()
    for path, verbs in schema.without_handler().items():
        yield from ((verb, path) for verb in verbs)


def reason(path: str) -> str | None:
    """Return why minipve refuses a path's methods; None if it does not refuse them."""
    return next((text for pattern, text in _REASONS if re.fullmatch(pattern, path)), None)


def status(verb: str, path: str) -> str:
    """Return the status of a method, by its verb and path template: here, refused or missing."""
    if (verb, path) in api.load():
        return HERE
    return REFUSED if reason(path) else MISSING


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return patterns of paths without a handler, and their templates."""
    return [(re.compile(re.sub(r"{[^}]+}", "[^/]+", path)), path) for path in schema.without_handler()]


def not_implemented(verb: str, path: str) -> str:
    """Return the text of a 501. It tells a gap of minipve from a method that PVE does not have, either."""
    text = f"Method '{verb} {path}' not implemented"
    for pattern, template in _patterns():
        if pattern.fullmatch(path) and verb in schema.without_handler()[template]:
            return f"{text}: {reason(template) or 'minipve does not have it'} ({PAGE})"
    return text


def _area(path: str) -> str:
    return next(name for pattern, name in _AREAS if re.search(pattern, path))


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


def page() -> str:
    """Return the page as Markdown."""
    by_status: dict[str, dict[str, list[str]]] = {HERE: {}, REFUSED: {}, MISSING: {}}
    for verb, path in methods():
        by_status[status(verb, path)].setdefault(path, []).append(verb)
    source = schema.source().rpartition("-")[2]
    return "\n".join(
        [
            "# Methods of minipve",
            "",
            "`python -m minipve.api.coverage` generates this page from minipve's handlers and the schema of",
            f"Proxmox VE {source}. Every other method gets 501. For a method of Proxmox VE, the answer",
            "contains the reason and the name of this page.",
            "",
            summary(),
            "",
            "## Here",
            "",
            *_table(by_status[HERE]),
            "",
            "## Refused",
            "",
            "minipve has no counterpart for these.",
            "",
            *_table(by_status[REFUSED], reasons=True),
            "",
            "## Missing",
            "",
            *_table(by_status[MISSING]),
            "",
        ]
    )


def _table(verbs_of: dict[str, list[str]], reasons: bool = False) -> list[str]:
    head = (
        ["| path | methods |", "|---|---|"]
        if not reasons
        else ["| path | methods | reason |", "|---|---|---|"]
    )
    return [
        *head,
        *(
            f"| `{path}` | {', '.join(sorted(verbs))} |{f' {reason(path)} |' if reasons else ''}"
            for path, verbs in sorted(verbs_of.items())
        ),
    ]


def main(argv: list[str]) -> None:
    """Print the page, or with ``--summary`` the table of the README."""
    print(summary() if argv == ["--summary"] else page(), end="" if argv != ["--summary"] else "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
