"""The methods of Proxmox VE's API by status: minipve has them (here), refuses them, or lacks them (missing).

PVE's methods come from ``schema.json``, and minipve's from the handlers. `PAGE` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from minipve.api import routing
from minipve.config.rules import schema

PAGE = "docs/reference/minipve-methods.md"
HERE, REFUSED, MISSING = "here", "refused", "missing"
_REASONS = (
    (r".*/ceph(/.*)?", "there is no Ceph"),
    (r".*/firewall(/.*)?", "there is no firewall"),
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


def methods() -> Iterator[tuple[str, str]]:
    """Yield the verb and the path template of each method of Proxmox VE."""
    yield from routing.load()
    for path, verbs in schema.without_handler().items():
        yield from ((verb, path) for verb in verbs)


def reason(path: str) -> str | None:
    """Return why minipve refuses a path's methods; None if it does not refuse them."""
    return next((text for pattern, text in _REASONS if re.fullmatch(pattern, path)), None)


def status(verb: str, path: str) -> str:
    """Return the status of a method, by its verb and path template: here, refused or missing."""
    if (verb, path) in routing.load():
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
