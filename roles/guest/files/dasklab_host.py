#!/usr/bin/python3 -SsE
"""What a lab host is and does, as JSON; and the few kernel settings that the lab needs on it.

    dasklab_host.py show                               counters and settings: cheap, before and after a run
    dasklab_host.py describe [CONTROLLER_TIME]         everything, also what does not change while it runs
    dasklab_host.py apply [--check]                    sysctls, offloads, capture NIC; says what changed

CONTROLLER_TIME, seconds since the epoch, is what the clock is compared with.

It reads ``/etc/dasklab/host.json``, which the role ``guest`` writes. Interfaces are found by MAC address (or
by name, or by lab address, where no MAC is known), each time anew: names may change with the NIC's model.
Standard library only and few imports: on an emulated guest each one costs tens of milliseconds. The other
commands in this directory import this file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

CONFIG = "/etc/dasklab/host.json"
IFB = "dasklab-in"  # carries what dasklab_link.py does to arriving frames
CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "tx": "tx-checksumming",
    "rx": "rx-checksumming",
}
PACKAGES = ("python3", "iproute2", "iputils-ping", "iperf3", "tcpdump", "ethtool")


class HostError(Exception):
    """Something that the user can mend; shown as one line."""


class UnsupportedError(HostError):
    """This host's kernel or programs lack what is needed; exit status 3."""


def read(path):
    """Return the text of a file, or an empty string if it cannot be read."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def run(argv):
    """Run a command and return its output; a failure is a HostError with the command's own words."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise HostError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def run_json(argv):
    """Run a command that prints JSON (iproute2 prints nothing for an empty list)."""
    return json.loads(run(argv) or "[]")


def config():
    """Return what the role ``guest`` wrote about this host."""
    text = read(CONFIG)
    if not text:
        raise HostError(f"{CONFIG} is missing: run the role guest (playbooks/configure.yml)")
    return json.loads(text)


def addresses():
    """Return every interface with its details and addresses, as ``ip`` tells them."""
    return run_json(["ip", "-j", "-d", "address", "show"])


def find(links, where):
    """Return the interface that ``where`` tells of: by its name, else its MAC, else its address; or None."""
    for key in ("name", "mac", "address"):
        if where.get(key):
            wanted = where[key].lower()
            return next((link for link in links if wanted in known_by(link, key)), None)
    return None


def known_by(link, key):
    """Return what an interface answers to: its name, its MAC or its addresses."""
    if key == "name":
        return [link["ifname"].lower()]
    if key == "mac":
        return [link.get("address", "").lower()]
    return [info.get("local") for info in link.get("addr_info", [])]


def lab_link(settings, links):
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


def capture_link(settings, links):
    """Return the capture interface, or None on a host that has none."""
    return find(links, settings["capture"]) if settings["capture"] else None


def driver(name):
    """Return the name of an interface's kernel driver; empty for one that is made by software."""
    link = Path(f"/sys/class/net/{name}/device/driver")
    return link.resolve().name if link.exists() else ""


def offloads(name):
    """Return the offload features of an interface, those of OFFLOADS only, as {"tso": True, ...}."""
    lines = [line.strip().partition(": ")[::2] for line in run(["ethtool", "-k", name]).splitlines()]
    state = {key: value.split()[0] == "on" for key, value in lines if value}
    return {short: state[long] for short, long in OFFLOADS.items() if long in state}


def interface(link):
    """Return what is told of one interface, with its counters."""
    name = link["ifname"]
    statistics = sorted(Path(f"/sys/class/net/{name}/statistics").iterdir())
    return {
        "name": name,
        "mac": link["address"],
        "driver": driver(name),
        "mtu": link["mtu"],
        "up": "UP" in link["flags"],
        "promiscuity": link.get("promiscuity", 0),
        "offloads": offloads(name),
        "statistics": {file.name: int(read(file)) for file in statistics},
    }


def cpu():
    """Return the seconds that all CPUs together spent in each state since boot."""
    ticks = read("/proc/stat").split("\n", 1)[0].split()[1:]
    return {
        name: int(value) / os.sysconf("SC_CLK_TCK") for name, value in zip(CPU_FIELDS, ticks, strict=False)
    }


def tcp():
    """Return the kernel's TCP counters that tell of loss."""
    lines = [line.split()[1:] for line in read("/proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    counters = dict(zip(lines[0], map(int, lines[1]), strict=True))
    return {name: counters[name] for name in ("InSegs", "OutSegs", "RetransSegs", "OutRsts")}


def softnet_dropped():
    """Return the frames dropped since boot because a CPU's backlog was full (all interfaces)."""
    return sum(int(line.split()[1], 16) for line in read("/proc/net/softnet_stat").splitlines())


def show():
    """Return counters and settings: what may change while the lab runs."""
    settings, links = config(), addresses()
    lab, capture = lab_link(settings, links), capture_link(settings, links)
    queues = run_json(["tc", "-s", "-j", "qdisc", "show"])
    return {
        "schema": 1,
        "name": settings["name"],
        "time": time.time(),
        "cpu": cpu(),
        "tcp": tcp(),
        "softnet_dropped": softnet_dropped(),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "lab": interface(lab),
        "capture": interface(capture) if capture else None,
        "qdiscs": [queue for queue in queues if queue.get("dev") in (lab["ifname"], IFB)],
    }


def describe(controller_time=None):
    """Return ``show`` and what stays the same while the host runs."""
    release = dict(line.partition("=")[::2] for line in read("/etc/os-release").splitlines())
    memory = dict(line.partition(":")[::2] for line in read("/proc/meminfo").splitlines())
    virtual = subprocess.run(["systemd-detect-virt"], capture_output=True, text=True)
    wanted = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    packages = subprocess.run(wanted, capture_output=True, text=True).stdout.splitlines()
    return {
        **show(),
        "clock_offset_s": clock_offset_s(controller_time),
        "kernel": os.uname().release,
        "os": release.get("PRETTY_NAME", "").strip('"'),
        "virtualization": virtual.stdout.strip(),
        "cpus": os.cpu_count(),
        "memory_mb": int(memory["MemTotal"].split()[0]) // 1000,
        "versions": {**dict(line.split(" ", 1) for line in packages), **python_packages()},
    }


def clock_offset_s(controller_time):
    """Return how far this clock is ahead of the controller's; the time of the way here is in it."""
    return None if controller_time is None else time.time() - controller_time


def python_packages(venv="/opt/dask"):
    """Return name and version of what the Dask environment has, without starting it."""
    found = Path(venv).glob("lib/python3*/site-packages/*.dist-info")
    pairs = [entry.stem.rpartition("-")[::2] for entry in found]
    return {name.lower().replace("_", "-"): version for name, version in sorted(pairs)}


def apply(check=False):
    """Bring this host to what its configuration says; returns what was changed and what cannot be."""
    settings, links = config(), addresses()
    lab, capture = lab_link(settings, links), capture_link(settings, links)
    plan = [change for name, value in settings["sysctls"].items() for change in plan_sysctl(name, value)]
    plan += plan_offloads(lab["ifname"], settings["lab"]["offloads"])
    if capture:
        plan += plan_capture(capture)
        plan += plan_offloads(capture["ifname"], settings["capture"]["offloads"])
    failed = [] if check else [text for change in plan if (text := attempt(change))]
    return {
        "schema": 1,
        "lab_interface": lab["ifname"],
        "capture_interface": capture["ifname"] if capture else None,
        "clock_s": time.time(),
        "changes": [change["why"] for change in plan],
        "unsupported": failed,
    }


def plan_sysctl(name, value):
    """Plan to set a sysctl, if it has another value."""
    now = " ".join(read("/proc/sys/" + name.replace(".", "/")).split())
    if now == str(value):
        return []
    return [{"why": f"{name}: {now} -> {value}", "argv": ["sysctl", "-q", "-w", f"{name}={value}"]}]


def plan_offloads(name, wanted):
    """Plan to switch the offload features of an interface that are not as wanted."""
    now = offloads(name) if wanted else {}
    differing = {key: value for key, value in wanted.items() if now.get(key) != value}
    words = {True: "on", False: "off"}
    return [
        {"why": f"{name} {key}: {words[value]}", "argv": ["ethtool", "-K", name, key, words[value]]}
        for key, value in differing.items()
    ]


def plan_capture(link):
    """Plan to bring the capture interface up, without IPv6: it listens and never speaks."""
    name = link["ifname"]
    plan = plan_sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
    if "UP" not in link["flags"]:
        plan.append({"why": f"{name}: up", "argv": ["ip", "link", "set", "dev", name, "up"]})
    return plan


def attempt(change):
    """Carry out one change; returns why it cannot be done here, or None."""
    try:
        run(change["argv"])
    except HostError as error:
        return str(error)
    return None


def answer(argv):
    """Do what the command line says and return the answer."""
    words = [word for word in argv if word != "--check"]
    controller_time = float(words[1]) if len(words) == 2 else None
    if words[:1] == ["describe"]:
        return describe(controller_time)
    if words == ["show"]:
        return show()
    if words[:1] == ["apply"]:
        return apply(check="--check" in argv)
    return sys.exit(__doc__)


def main(answer):
    """Print a command's answer as one line of JSON, or a mistake as one line of text."""
    try:
        print(json.dumps(answer(sys.argv[1:])))
    except UnsupportedError as error:
        print(json.dumps({"schema": 1, "unsupported": str(error)}))
        sys.exit(3)
    except (HostError, ValueError) as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")


if __name__ == "__main__":
    main(answer)
