"""What the parts of the guest program share: the host's identity, its interfaces, running commands, errors.

``/etc/dasklab/host.json``, written by role ``base``, says which host this is. Interfaces are looked up by
MAC address each time, because their names may change with the NIC model; by name or by lab address where no
MAC is known. The whole package uses the standard library only and imports little: each import costs an
emulated guest tens of milliseconds.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

TYPE_CHECKING = False  # as in typing, which would be one more import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Document = dict[str, Any]

PROGRAM = "/opt/dasklab/bin/dasklab-guest"
HOST_FILE = Path("/etc/dasklab/host.json")
RUNTIME = Path("/run/dasklab")  # state that must not survive a reboot
IFB = "dasklab-in"  # the device through which arriving frames pass where they are impaired
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "tx": "tx-checksumming",
    "rx": "rx-checksumming",
}


class HostError(Exception):
    """A problem that the user can fix; printed as one line."""


class UnsupportedError(HostError):
    """This host's kernel or programs lack what is needed."""


def read(path: str | Path) -> str:
    """Return the text of a file, or an empty string if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def run(argv: Sequence[str]) -> str:
    """Run a command and return its output.

    Raises:
        HostError: the command failed, and the message is its own; or it is not installed.
    """
    try:
        process = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostError(f"{argv[0]} is not installed on this host") from None
    if process.returncode:
        raise HostError(f"{' '.join(argv)}: {(process.stderr or process.stdout).strip()}")
    return process.stdout


def run_json(argv: Sequence[str]) -> list[Document]:
    """Run a command that prints a list as JSON. iproute2 prints nothing for an empty list."""
    entries: list[Document] = json.loads(run(argv) or "[]")
    return entries


def stop_units(*patterns: str) -> None:
    """Stop systemd units, also those that are not loaded."""
    subprocess.run(["systemctl", "stop", *patterns], capture_output=True, check=False)


def start_unit(name: str, argv: Sequence[str], **properties: object) -> None:
    """Start a command in a transient unit of systemd that forgets itself when it ends."""
    options = [f"--property={key}={value}" for key, value in properties.items()]
    run(["systemd-run", "--quiet", "--collect", f"--unit={name}", *options, *argv])


def start_timer(name: str, after_s: float, argv: Sequence[str], **properties: object) -> None:
    """Run a command after some seconds, from a transient timer of systemd."""
    options = [f"--timer-property={key}={value}" for key, value in properties.items()]
    timer = ["--quiet", "--collect", f"--unit={name}", *options, f"--on-active={after_s}s"]
    run(["systemd-run", *timer, *argv])


def is_active(unit: str) -> bool:
    """Return whether a systemd unit runs."""
    return subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False).returncode == 0


def is_container() -> bool:
    """Return whether this host is a container, which has its node's kernel."""
    return not subprocess.run(["systemd-detect-virt", "--quiet", "--container"], check=False).returncode


def host() -> Document:
    """Return what the inventory says about this host.

    Raises:
        HostError: the host is not configured.
    """
    text = read(HOST_FILE)
    if not text:
        raise HostError(f"{HOST_FILE} is missing; apply role base, or run `dasklab up --only configure`")
    document: Document = json.loads(text)
    return document


def interfaces() -> list[Document]:
    """Return every interface with details and addresses, as ``ip`` prints them."""
    return run_json(["ip", "-j", "-d", "address", "show"])


def find(links: Sequence[Document], where: Document) -> Document | None:
    """Return the interface that ``where`` describes: by ``name``, else by ``mac``, else by ``address``."""
    for key in ("name", "mac", "address"):
        if where.get(key):
            return next((link for link in links if where[key].lower() in identifiers(link, key)), None)
    return None


def is_named(where: Document) -> bool:
    """Return whether ``where`` describes an interface at all."""
    return any(where.values())


def identifiers(link: Document, key: str) -> list[str]:
    """Return the name, the MAC or the addresses of an interface, in lower case."""
    if key == "name":
        return [link["ifname"].lower()]
    if key == "mac":
        return [link.get("address", "").lower()]
    return [info.get("local", "") for info in link.get("addr_info", [])]


def lab_link(settings: Document, links: Sequence[Document]) -> Document:
    """Return the link under test.

    Raises:
        HostError: there is no such interface, or it carries the management address.
    """
    if not is_named(settings["lab"]):
        raise HostError("the link under test is not named; set lab_interface, lab_mac or lab_address")
    link = find(links, settings["lab"])
    if link is None:
        names = ", ".join(f"{key} {value}" for key, value in settings["lab"].items() if value)
        raise HostError(f"no interface is the link under test: {names}")
    management = find(links, {"address": settings["management_address"]})
    if management and management["ifname"] == link["ifname"]:
        raise HostError(
            f"{link['ifname']} also carries the management address; the lab needs its own NIC"
            " (base_management_address='' allows it)"
        )
    return link


def capture_link(settings: Document, links: Sequence[Document]) -> Document | None:
    """Return the capture interface, or None on a host without one."""
    return find(links, settings["capture"]) if settings["capture"] else None


def driver(link: Document) -> str:
    """Return an interface's kernel driver, or its kind (``veth``) where software makes it."""
    device = Path(f"/sys/class/net/{link['ifname']}/device/driver")
    return device.resolve().name if device.exists() else link.get("linkinfo", {}).get("info_kind", "")


def offloads(name: str) -> dict[str, bool]:
    """Return the offload features of an interface, those in OFFLOADS only, as {"tso": True, ...}."""
    lines = [line.strip().partition(": ")[::2] for line in run(["ethtool", "-k", name]).splitlines()]
    state = {key: value.split()[0] == "on" for key, value in lines if value}
    return {short: state[long] for short, long in OFFLOADS.items() if long in state}


def interface(link: Document) -> Document:
    """Return an interface's settings and counters."""
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
    """Return the frames dropped since boot because a CPU's backlog was full, on all interfaces."""
    return sum(int(line.split()[1], 16) for line in read("/proc/net/softnet_stat").splitlines())
