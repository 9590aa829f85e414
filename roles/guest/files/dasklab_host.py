#!/usr/bin/python3 -SsE
"""What a lab host is and does, as JSON; and the few kernel settings that the lab needs on it.

    dasklab_host.py show                               counters and settings: cheap, before and after a run
    dasklab_host.py describe [CONTROLLER_TIME]         everything, also what does not change while it runs
    dasklab_host.py apply [--check]                    sysctls, offloads, capture NIC; says what changed
    dasklab_host.py shift-clock SECONDS [--check]      puts the clock forward, or back by a negative number

CONTROLLER_TIME, seconds since the epoch, is what the clock is compared with. What the settings should be:
``/etc/dasklab/settings.json``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from dasklab_common import (
    IFB,
    SCHEMA,
    HostError,
    addresses,
    capture_link,
    config,
    interface,
    lab_link,
    main,
    offloads,
    read,
    run,
    run_json,
    softnet_dropped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dasklab_common import Document

SETTINGS = "/etc/dasklab/settings.json"
CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
TCP_FIELDS = ("InSegs", "OutSegs", "RetransSegs", "OutRsts")  # those that tell of loss
PACKAGES = ("python3", "iproute2", "iputils-ping", "iperf3", "tcpdump", "ethtool")


def cpu() -> dict[str, float]:
    """Return the seconds that all CPUs together spent in each state since boot."""
    ticks = read("/proc/stat").split("\n", 1)[0].split()[1:]
    per_s = os.sysconf("SC_CLK_TCK")
    return {name: int(value) / per_s for name, value in zip(CPU_FIELDS, ticks, strict=False)}


def pid_namespace() -> str | None:
    """Return by what a container's node knows its processes; None of a machine that is no container."""
    if subprocess.run(["systemd-detect-virt", "--quiet", "--container"], check=False).returncode:
        return None
    return str(Path("/proc/self/ns/pid").readlink())


def tcp() -> dict[str, int]:
    """Return the kernel's TCP counters that tell of loss."""
    lines = [line.split()[1:] for line in read("/proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    counters = dict(zip(lines[0], map(int, lines[1]), strict=True))
    return {name: counters[name] for name in TCP_FIELDS}


def show() -> Document:
    """Return counters and settings: what may change while the lab runs."""
    settings, links = config(), addresses()
    lab, capture = lab_link(settings, links), capture_link(settings, links)
    queues = run_json(["tc", "-s", "-j", "qdisc", "show"])
    return {
        "schema": SCHEMA,
        "name": settings["name"],
        "time": time.time(),
        "cpu": cpu(),
        "pid_namespace": pid_namespace(),
        "tcp": tcp(),
        "softnet_dropped": softnet_dropped(),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "lab": interface(lab),
        "capture": interface(capture) if capture else None,
        "qdiscs": [queue for queue in queues if queue.get("dev") in (lab["ifname"], IFB)],
    }


def describe(controller_time: float | None = None) -> Document:
    """Return ``show`` and what stays the same while the host runs."""
    release = dict(line.partition("=")[::2] for line in read("/etc/os-release").splitlines())
    memory = dict(line.partition(":")[::2] for line in read("/proc/meminfo").splitlines())
    virtual = subprocess.run(["systemd-detect-virt"], capture_output=True, text=True, check=False)
    return {
        **show(),
        "clock_offset_s": clock_offset_s(controller_time),
        "kernel": os.uname().release,
        "os": release.get("PRETTY_NAME", "").strip('"'),
        "virtualization": virtual.stdout.strip(),
        "cpus": os.cpu_count(),
        "memory_mb": int(memory["MemTotal"].split()[0]) // 1000,
        "versions": {**debian_packages(), **python_packages(config(SETTINGS)["dask"])},
    }


def clock_offset_s(controller_time: float | None) -> float | None:
    """Return how far this clock is ahead of the controller's; the time of the way here is in it."""
    return None if controller_time is None else time.time() - controller_time


def debian_packages() -> dict[str, str]:
    """Return name and version of those of PACKAGES that are installed."""
    wanted = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    found = subprocess.run(wanted, capture_output=True, text=True, check=False).stdout
    pairs = [line.partition(" ")[::2] for line in found.splitlines()]
    return {name: version for name, version in pairs if version}


def python_packages(venv: str) -> dict[str, str]:
    """Return name and version of what the Dask environment has, without starting it."""
    found = Path(venv).glob("lib/python3*/site-packages/*.dist-info")
    pairs = [entry.stem.rpartition("-")[::2] for entry in found]
    return {name.lower().replace("_", "-"): version for name, version in sorted(pairs)}


def apply(check: bool = False) -> Document:
    """Bring this host to what its configuration says; returns what was changed and what cannot be."""
    host, settings, links = config(), config(SETTINGS), addresses()
    lab, capture = lab_link(host, links), capture_link(host, links)
    plan = [change for name, value in settings["sysctls"].items() for change in plan_sysctl(name, value)]
    plan += plan_mtu(lab, settings["mtu"])
    plan += plan_offloads(lab["ifname"], settings["offloads"])
    if capture:
        plan += plan_capture(capture)
        plan += plan_offloads(capture["ifname"], settings["capture_offloads"])
    failed = {change["why"]: text for change in plan if (text := attempt(change, check))}
    return {
        "schema": SCHEMA,
        "clock_s": time.time(),
        "changes": [change["why"] for change in plan if change["why"] not in failed],
        "unsupported": list(failed.values()),
    }


def shift_clock(seconds: float, check: bool = False) -> Document:
    """Put the clock forward; returns what was changed, or why it cannot be (a container has none)."""
    answer: Document = {"schema": SCHEMA, "changes": [f"clock: {seconds:+.1f} s"], "unsupported": []}
    if check:
        return answer
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    except OSError as error:
        return {**answer, "changes": [], "unsupported": [f"the clock cannot be set here: {error.strerror}"]}
    return answer


def plan_sysctl(name: str, value: Any) -> list[Document]:
    """Plan to set a sysctl, if it has another value."""
    file = "/proc/sys/" + name.replace(".", "/")
    now = " ".join(read(file).split())
    if now == str(value):
        return []
    argv = ["sysctl", "-q", "-w", f"{name}={value}"]
    return [{"why": f"{name}: {now} -> {value}", "argv": argv, "file": file}]


def plan_offloads(name: str, wanted: dict[str, bool]) -> list[Document]:
    """Plan to switch the offload features of an interface that are not as wanted."""
    now = offloads(name) if wanted else {}
    differing = {key: value for key, value in wanted.items() if now.get(key) != value}
    words = {True: "on", False: "off"}
    return [
        {"why": f"{name} {key}: {words[value]}", "argv": ["ethtool", "-K", name, key, words[value]]}
        for key, value in differing.items()
    ]


def plan_mtu(link: Document, wanted: int) -> list[Document]:
    """Plan to let the frames of an interface be as large as its way carries; 0 is as large as they are."""
    if not wanted or link["mtu"] == wanted:
        return []
    argv = ["ip", "link", "set", "dev", link["ifname"], "mtu", str(wanted)]
    return [{"why": f"{link['ifname']} mtu: {link['mtu']} -> {wanted}", "argv": argv}]


def plan_capture(link: Document) -> list[Document]:
    """Plan to bring the capture interface up, without IPv6: it listens and never speaks."""
    name = link["ifname"]
    plan = plan_sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
    if "UP" not in link["flags"]:
        plan.append({"why": f"{name}: up", "argv": ["ip", "link", "set", "dev", name, "up"]})
    return plan


def attempt(change: Document, check: bool = False) -> str | None:
    """Carry out one change, with ``check`` only look; returns why it cannot be done here, or None."""
    if check:
        return None if Path(change.get("file", "/")).exists() else f"{change['file']} is not there"
    try:
        run(change["argv"])
    except HostError as error:
        return str(error)
    return None


def answer(argv: list[str]) -> Document:
    """Do what the command line says and return the answer."""
    words = [word for word in argv if word != "--check"]
    if words[:1] == ["shift-clock"] and len(words) == 2:
        return shift_clock(float(words[1]), check="--check" in argv)
    controller_time = float(words[1]) if len(words) == 2 else None
    if words[:1] == ["describe"]:
        return describe(controller_time)
    if words == ["show"]:
        return show()
    if words[:1] == ["apply"]:
        return apply(check="--check" in argv)
    return sys.exit(__doc__)


if __name__ == "__main__":
    main(answer)
