"""Describe this host, and bring the few kernel settings that the lab needs to their values.

``/etc/dasklab/settings.json``, written by role ``guest``, says what the settings should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from dasklab_guest import cgroup
from dasklab_guest.common import (
    IFB,
    HostError,
    capture_link,
    host,
    interface,
    interfaces,
    is_container,
    is_named,
    lab_link,
    offloads,
    read,
    run,
    run_json,
    softnet_dropped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dasklab_guest.common import Document

SETTINGS_FILE = Path("/etc/dasklab/settings.json")
CPU_FIELDS = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
TCP_FIELDS = ("InSegs", "OutSegs", "RetransSegs", "OutRsts")  # those that show loss
LINK_COUNTERS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
PACKAGES = ("python3", "iproute2", "iputils-ping", "iperf3", "tcpdump", "ethtool")


def settings() -> Document:
    """Return the settings that role ``guest`` wrote."""
    document: Document = json.loads(read(SETTINGS_FILE) or "{}")
    return document


def cpu() -> dict[str, float]:
    """Return the seconds that all CPUs together spent in each state since boot."""
    ticks = read("/proc/stat").split("\n", 1)[0].split()[1:]
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return {name: int(value) / ticks_per_s for name, value in zip(CPU_FIELDS, ticks, strict=False)}


def cores() -> int:
    """Return the CPUs that the inventory gives this host; 0 if it does not say."""
    return int(settings().get("cores", 0))


def own_cpu() -> dict[str, float] | None:
    """Return the seconds that the CPUs of this container spent in each state; None if nothing counts them.

    What it did not use of its CPUs' time is idle.
    """
    used_s = cgroup.cpu_s()
    if used_s is None:
        return None
    idle_s = cgroup.cpus(cores()) * time.monotonic() - used_s
    return dict.fromkeys(CPU_FIELDS, 0.0) | {"user_s": used_s, "idle_s": idle_s}


def pid_namespace() -> str | None:
    """Return the name under which the node knows a container's processes; None on a virtual machine."""
    return str(Path("/proc/self/ns/pid").readlink()) if is_container() else None


def tcp() -> dict[str, int]:
    """Return the kernel's TCP counters that show loss."""
    lines = [line.split()[1:] for line in read("/proc/net/snmp").splitlines() if line.startswith("Tcp:")]
    counters = dict(zip(lines[0], map(int, lines[1]), strict=True))
    return {name: counters[name] for name in TCP_FIELDS}


def meminfo() -> dict[str, int]:
    """Return the kernel's figures about memory, in KiB; a few are numbers of pages."""
    lines = [line.partition(":")[::2] for line in read("/proc/meminfo").splitlines()]
    return {name: int(value.split()[0]) for name, value in lines}


def counters() -> Document:
    """Return counters and settings: what may change during a run. Cheap."""
    identity, links = host(), interfaces()
    lab, capture = lab_link(identity, links), capture_link(identity, links)
    qdiscs = run_json(["tc", "-s", "-j", "qdisc", "show"])
    return {
        "name": identity["name"],
        "time": time.time(),
        "cpu": cpu(),
        "pid_namespace": pid_namespace(),
        "tcp": tcp(),
        "softnet_dropped": softnet_dropped(),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").strip(),
        "lab": interface(lab),
        "capture": interface(capture) if capture else None,
        "qdiscs": [qdisc for qdisc in qdiscs if qdisc.get("dev") in (lab["ifname"], IFB)],
    }


def describe() -> Document:
    """Return the counters, and what stays the same while the host runs."""
    own, total_bytes = is_container(), meminfo()["MemTotal"] * 1024
    if own:
        total_bytes = cgroup.memory_bytes(total_bytes)
    release = dict(line.partition("=")[::2] for line in read("/etc/os-release").splitlines())
    virtualization = subprocess.run(["systemd-detect-virt"], capture_output=True, text=True, check=False)
    return {
        **counters(),
        "clock_offset_s": clock_offset_s(),
        "kernel": os.uname().release,
        "os": release.get("PRETTY_NAME", "").strip('"'),
        "virtualization": virtualization.stdout.strip(),
        "cpus": max(1, round(cgroup.cpus(cores()))) if own else os.cpu_count(),
        "memory_mb": total_bytes // 1_024_000,
        "versions": {**debian_packages(), **python_packages(settings().get("dask", ""))},
    }


def watch(interval_s: float = 2.0) -> None:
    """Print a sample as one line of JSON, again and again, until nobody reads it any more.

    A sample costs this host no process: it has what ``dasklab top`` shows.
    """
    name, own = lab_link(host(), interfaces())["ifname"], is_container()
    while True:
        try:
            print(json.dumps(sample(name, own)), flush=True)
        except BrokenPipeError:
            os._exit(0)  # nor could anybody read what Python prints at its end
        time.sleep(interval_s)


def sample(name: str, own: bool) -> Document:
    """Return the counters of CPUs, memory, TCP and the interface ``name``, and how its link is impaired.

    With ``own``, CPUs and memory are those of this container and not of its node.
    """
    memory_kib = meminfo()
    used = cgroup.memory_used(memory_kib["MemTotal"] * 1024) if own else None
    folder = Path(f"/sys/class/net/{name}/statistics")
    return {
        "time": time.time(),
        "cpu": (own_cpu() if own else None) or cpu(),
        "memory_used": 1 - memory_kib["MemAvailable"] / memory_kib["MemTotal"] if used is None else used,
        "tcp": tcp(),
        "lab": {counter: int(read(folder / counter) or 0) for counter in LINK_COUNTERS},
        "links": requested_links(),
    }


def requested_links() -> list[Document]:
    """Return how the link under test is impaired; nothing where role ``netem`` is not installed."""
    try:
        from dasklab_guest.link import last_request
    except ModuleNotFoundError:
        return []
    links: list[Document] = last_request()["requested"]
    return links


def clock_offset_s() -> float | None:
    """Return how far this clock is ahead of the controller's, at most.

    The controller passes its time in ``DASKLAB_SENT_S``; what the order needed to get here is included.
    """
    sent_s = os.environ.get("DASKLAB_SENT_S")
    return time.time() - float(sent_s) if sent_s else None


def clock() -> Document:
    """Return this clock, and how far it is ahead of the controller's, at most."""
    return {"time_s": time.time(), "ahead_s": clock_offset_s()}


def debian_packages() -> dict[str, str]:
    """Return name and version of those of PACKAGES that are installed."""
    argv = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    output = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    pairs = [line.partition(" ")[::2] for line in output.splitlines()]
    return {name: version for name, version in pairs if version}


def python_packages(venv: str) -> dict[str, str]:
    """Return name and version of the packages in Dask's environment, without starting its Python."""
    folders = Path(venv or "/nonexistent").glob("lib/python3*/site-packages/*.dist-info")
    pairs = [folder.stem.rpartition("-")[::2] for folder in folders]
    return {name.lower().replace("_", "-"): version for name, version in sorted(pairs)}


def apply(check: bool = False) -> Document:
    """Bring this host to its settings; with ``check`` only look.

    Returns:
        ``changes`` in words, and ``unsupported``: what this host cannot do.
    """
    identity, target, links = host(), settings(), interfaces()
    capture = capture_link(identity, links)
    plan = [change for name, value in target["sysctls"].items() for change in plan_sysctl(name, value)]
    if target["mtu"] or target["offloads"] or is_named(identity["lab"]):
        lab = lab_link(identity, links)
        plan += plan_mtu(lab, target["mtu"])
        plan += plan_offloads(lab["ifname"], target["offloads"])
    if capture:
        plan += plan_capture(capture)
        plan += plan_offloads(capture["ifname"], target["capture_offloads"])
    problems = {change["why"]: problem for change in plan if (problem := attempt(change, check))}
    return {
        "changes": [change["why"] for change in plan if change["why"] not in problems],
        "unsupported": list(problems.values()),
    }


def shift_clock(ahead_s: float, check: bool = False) -> Document:
    """Correct a clock that is ahead, or behind by a negative number. Returns as ``apply``."""
    change = {"changes": [f"clock: {-ahead_s:+.1f} s"], "unsupported": []}
    if check:
        return change
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time() - ahead_s)
    except OSError as error:  # a container has no clock of its own
        return {**change, "changes": [], "unsupported": [f"the clock cannot be set: {error.strerror}"]}
    return change


def plan_sysctl(name: str, value: Any) -> list[Document]:
    """Plan to set a sysctl, if it has another value."""
    file = "/proc/sys/" + name.replace(".", "/")
    current = " ".join(read(file).split())
    if current == str(value):
        return []
    argv = ["sysctl", "-q", "-w", f"{name}={value}"]
    return [{"why": f"{name}: {current} -> {value}", "argv": argv, "file": file}]


def plan_offloads(name: str, target: dict[str, bool]) -> list[Document]:
    """Plan to switch the offload features of an interface that differ from ``target``."""
    current = offloads(name) if target else {}
    words = {True: "on", False: "off"}
    return [
        {"why": f"{name} {key}: {words[value]}", "argv": ["ethtool", "-K", name, key, words[value]]}
        for key, value in target.items()
        if current.get(key) != value
    ]


def plan_mtu(link: Document, target: int) -> list[Document]:
    """Plan to set the MTU of an interface; 0 leaves it."""
    if not target or link["mtu"] == target:
        return []
    argv = ["ip", "link", "set", "dev", link["ifname"], "mtu", str(target)]
    return [{"why": f"{link['ifname']} mtu: {link['mtu']} -> {target}", "argv": argv}]


def plan_capture(link: Document) -> list[Document]:
    """Plan to bring the capture interface up, without IPv6: it listens and never sends."""
    name = link["ifname"]
    plan = plan_sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
    if "UP" not in link["flags"]:
        plan.append({"why": f"{name}: up", "argv": ["ip", "link", "set", "dev", name, "up"]})
    return plan


def attempt(change: Document, check: bool = False) -> str | None:
    """Make one change, or with ``check`` only look. Returns why this host cannot do it, or None."""
    if check:
        return None if Path(change.get("file", "/")).exists() else f"{change['file']} does not exist"
    try:
        run(change["argv"])
    except HostError as error:
        return str(error)
    return None


STEPS = {
    "apply": apply,
    "clock": clock,
    "counters": counters,
    "describe": describe,
    "shift_clock": shift_clock,
    "watch": watch,
}
