"""What the operating system and Dask's configuration say of this process."""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import psutil

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

CREDENTIALS = re.compile(r"(\w+://)[^/@\s\"]*@")
NAN = float("nan")
CPU, WAITING_FOR_CPU = "process/cpu/seconds", "process/waiting-for-cpu/seconds"
RETRANSMITTED = "host/tcp-retransmitted/segments"
BOOT = Path("/proc/sys/kernel/random/boot_id")
LOOK_SHARE = 1e-3  # of the time may be spent on looking at all CPUs: /proc/stat is long on large machines
NETWORK = Path("/sys/class/net")
SOFTWARE = re.compile(
    r"loopback|virtual|vethernet|vmware|vmnet|hyper-v|bridge|docker|^lo\d|tun|tap", re.IGNORECASE
)
KNOWS_SLEEPS = hasattr(resource, "RUSAGE_THREAD")
INTERNET = (socket.AF_INET, socket.AF_INET6)


def without_credentials(text: str) -> str:
    """Remove names and passwords from URLs."""
    return CREDENTIALS.sub(r"\1", text)


def times_asleep() -> float:
    """Return how often the calling thread gave up its CPU by itself; NaN where nobody knows."""
    return float(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw) if KNOWS_SLEEPS else NAN


class ThreadCpu(NamedTuple):
    """For how long a thread of this process has run, and waited for a CPU; NaN where nobody knows.

    Only Linux knows. A thread that has ended is not known any more.

    Attributes:
        times: how often it was put on a CPU.
    """

    ran_s: float = NAN
    waited_s: float = NAN
    times: float = NAN

    @classmethod
    def of(cls, thread: int) -> ThreadCpu:
        """Return the times of a thread, by the number that the system gave it."""
        try:
            with Path(f"/proc/self/task/{thread}/schedstat").open("rb", buffering=0) as schedstat:
                ran, waited, times = schedstat.read().split()
            return cls(int(ran) / 1e9, int(waited) / 1e9, int(times))
        except (OSError, ValueError):
            return cls()

    def since(self, earlier: ThreadCpu) -> ThreadCpu:
        """Return what was added since an earlier look at the same thread."""
        return ThreadCpu(*(now - before for now, before in zip(self, earlier, strict=True)))

    @property
    def is_known(self) -> bool:
        return not isnan(self.ran_s)


class ThreadWaits:
    """For how long all threads of this process have waited for a CPU.

    Of a thread that has ended, what it had waited when it was last seen.
    """

    def __init__(self) -> None:
        self.waited_s: dict[int, float] = {}  # by thread
        self.ended_s = 0.0  # of threads that have ended

    def seconds(self) -> float:
        """Return the sum; NaN where nobody knows."""
        threads = [int(folder.name) for folder in Path("/proc/self/task").glob("*")]
        use = {thread: ThreadCpu.of(thread) for thread in threads}
        now = {thread: used.waited_s for thread, used in use.items() if used.is_known}
        for thread, waited in self.waited_s.items():
            if now.get(thread, -1.0) < waited:  # it has ended; its number may be that of a new one
                self.ended_s += waited
        self.waited_s = now
        return self.ended_s + sum(now.values()) if now else NAN


def resident_bytes() -> float:
    return float(psutil.Process().memory_info().rss)


def kernel_counters() -> dict[str, float]:
    """Return what the kernel counts for this host: TCP segments sent again."""
    try:
        lines = Path("/proc/net/snmp").read_text(encoding="utf-8").splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return {RETRANSMITTED: float(dict(zip(names, values, strict=True))["RetransSegs"])}
    except (OSError, ValueError, KeyError):
        return {}


def machine() -> tuple[str, int]:
    """Return a name that all containers of this machine share, and the number of its CPUs; 0 if unknown."""
    try:
        name = BOOT.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        name = platform.node()
    try:
        return name, len(psutil.cpu_times(percpu=True))
    except (OSError, RuntimeError):
        return name, 0


class MachineCpu:
    """The CPU time of all programs of this machine, and what the hypervisor gave to other machines."""

    def __init__(self) -> None:
        self.due = 0.0

    def seconds(self) -> float:
        """Return the sum since the machine started; NaN where nobody knows, or if it is too early to look."""
        if perf_counter() < self.due:
            return NAN
        before_s = thread_time()  # a thread that had to wait for a CPU took nothing from anybody
        try:
            times = psutil.cpu_times()
        except (OSError, RuntimeError):
            return NAN
        self.due = perf_counter() + (thread_time() - before_s) / LOOK_SHARE
        others = ("iowait", "guest", "guest_nice")  # the last two are part of user and nice, too
        return float(sum(times) - times.idle - sum(getattr(times, name, 0.0) for name in others))


def network_interfaces(folder: Path = NETWORK) -> Iterator[tuple[str, str, float]]:
    """Yield name, address and Mbit/s of this host's network hardware that is up.

    A device of software (a bridge, a container's end of a pair) states speeds that mean nothing.
    """
    addresses = psutil.net_if_addrs()
    for name, mbit in _link_speeds(folder):
        internet = [a.address for a in addresses.get(name, ()) if a.family in INTERNET]
        yield from ((name, address.partition("%")[0], mbit) for address in internet)


def _link_speeds(folder: Path) -> Iterator[tuple[str, float]]:
    """Yield the name and Mbit/s of hardware that is up; psutil knows them where there is no Linux."""
    if not folder.exists():
        states = sorted(psutil.net_if_stats().items())
        yield from ((name, float(state.speed)) for name, state in states if _is_hardware(name, state))
    for path in sorted(folder.glob("*")):
        try:
            mbit = float((path / "speed").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it is down, or states no speed
            continue
        if mbit > 0 and (path / "device").exists():
            yield path.name, mbit


def _is_hardware(name: str, state: Any) -> bool:
    """Whether psutil describes hardware that is up; only its name tells it from software."""
    return state.isup and state.speed > 0 and not SOFTWARE.search(name)
