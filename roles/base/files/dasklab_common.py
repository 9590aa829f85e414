"""What the lab's programs on a host share: who this host is, which interfaces are the lab's, how to answer.

``/etc/dasklab/host.json``, made from the inventory, says who the host is. Interfaces are found by MAC address
(or by name, or by lab address, where no MAC is known), each time anew: names may change with the NIC's model.
Standard library only and few imports: on an emulated guest each one costs tens of milliseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False  # as in typing, which would be one more import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Document = dict[str, Any]

SCHEMA = 1
UNSUPPORTED = 3  # exit status for what a host's kernel or programs cannot do
CONFIG = "/etc/dasklab/host.json"
IFB = "dasklab-in"  # the device that arriving frames go through where they are impaired
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "tx": "tx-checksumming",
    "rx": "rx-checksumming",
}


class HostError(Exception):
    """Something that the user can mend; shown as one line."""


class UnsupportedError(HostError):
    """This host's kernel or programs lack what is needed."""


def read(path: str | Path) -> str:
    """Return the text of a file, or an empty string if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def run(argv: list[str]) -> str:
    """Run a command and return its output; a failure is a HostError with the command's own words."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def run_json(argv: list[str]) -> list[Document]:
    """Run a command that prints a list as JSON (iproute2 prints nothing for an empty one)."""
    found: list[Document] = json.loads(run(argv) or "[]")
    return found


def config(path: str = CONFIG) -> Document:
    """Return what the inventory says about this host, as the lab's roles wrote it here."""
    text = read(path)
    if not text:
        raise HostError(f"{path} is missing: run `dasklab up --only configure`")
    settings: Document = json.loads(text)
    return settings


def addresses() -> list[Document]:
    """Return every interface with its details and addresses, as ``ip`` tells them."""
    return run_json(["ip", "-j", "-d", "address", "show"])


def find(links: list[Document], where: Document) -> Document | None:
    """Return the interface that ``where`` tells of: by its name, else its MAC, else its address; or None."""
    for key in ("name", "mac", "address"):
        if where.get(key):
            wanted = where[key].lower()
            return next((link for link in links if wanted in known_by(link, key)), None)
    return None


def known_by(link: Document, key: str) -> list[str]:
    """Return what an interface answers to: its name, its MAC or its addresses."""
    if key == "name":
        return [link["ifname"].lower()]
    if key == "mac":
        return [link.get("address", "").lower()]
    return [info.get("local", "") for info in link.get("addr_info", [])]


def lab_link(settings: Document, links: list[Document]) -> Document:
    """Return the lab link under test; it must be there, and must not be the management interface."""
    link = find(links, settings["lab"])
    if link is None:
        raise HostError(f"no interface is as {CONFIG} says of the lab link: {settings['lab']}")
    management = find(links, {"address": settings["management_address"]})
    if management and management["ifname"] == link["ifname"]:
        raise HostError(
            f"{link['ifname']} carries the management address too: the lab needs a NIC of its own"
        )
    return link


def capture_link(settings: Document, links: list[Document]) -> Document | None:
    """Return the capture interface, or None on a host that has none."""
    return find(links, settings["capture"]) if settings["capture"] else None


def driver(link: Document) -> str:
    """Return the name of an interface's kernel driver; its kind (``veth``) where it is made by software."""
    device = Path(f"/sys/class/net/{link['ifname']}/device/driver")
    return device.resolve().name if device.exists() else link.get("linkinfo", {}).get("info_kind", "")


def offloads(name: str) -> dict[str, bool]:
    """Return the offload features of an interface, those of OFFLOADS only, as {"tso": True, ...}."""
    lines = [line.strip().partition(": ")[::2] for line in run(["ethtool", "-k", name]).splitlines()]
    state = {key: value.split()[0] == "on" for key, value in lines if value}
    return {short: state[long] for short, long in OFFLOADS.items() if long in state}


def interface(link: Document) -> Document:
    """Return what is told of one interface, with its counters."""
    name = link["ifname"]
    statistics = sorted(Path(f"/sys/class/net/{name}/statistics").iterdir())
    return {
        "name": name,
        "mac": link["address"],
        "driver": driver(link),
        "mtu": link["mtu"],
        "up": "UP" in link["flags"],
        "promiscuity": link.get("promiscuity", 0),
        "offloads": offloads(name),
        "statistics": {file.name: int(read(file)) for file in statistics},
    }


def softnet_dropped() -> int:
    """Return the frames dropped since boot because a CPU's backlog was full (all interfaces)."""
    return sum(int(line.split()[1], 16) for line in read("/proc/net/softnet_stat").splitlines())


def main(answer: Callable[[list[str]], Document | None]) -> None:
    """Print a program's answer as one line of JSON, or a mistake as one line of text."""
    try:
        print(json.dumps(answer(sys.argv[1:])))
    except UnsupportedError as error:
        print(json.dumps({"schema": SCHEMA, "unsupported": str(error)}))
        sys.exit(UNSUPPORTED)
    except (HostError, ValueError) as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")
