"""Record the frames of the lab bridge on this host's capture interface, in two tiers.

Frames to or from the scheduler are recorded whole: they contain Dask's operations, which a cut frame would
hide. Of all other frames, mostly array data, the first ``snaplen_bytes`` are kept. A TCP connection is
always in one file. Each tier is a tcpdump in a transient systemd unit that ends after ``ttl_s``, whatever
became of the caller.

Three counters report dropped frames: tcpdump's own (its buffer was full), the interface's, and the kernel's
backlog of each CPU (``softnet_dropped``), which neither of the others sees. ``left_behind`` are frames that
the kernel had for tcpdump and tcpdump did not write.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

from dasklab_guest.common import (
    RUNTIME,
    HostError,
    capture_link,
    host,
    interface,
    interfaces,
    is_active,
    read,
    softnet_dropped,
    start_unit,
    stop_units,
)
from dasklab_guest.order import TRIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from dasklab_guest.common import Document

STATE = RUNTIME / "capture.json"
UNIT = "dasklab-capture-{name}.service"
WHOLE_BYTES = 262_144  # tcpdump's own maximum, more than any super-frame
LISTEN_TIMEOUT_S = 30  # an emulated machine needs a few seconds
# The kernel hands frames to tcpdump in blocks, a second late or, when busy, later; an earlier stop loses
# them.
SETTLE_S = 20
POLL_S = 0.2  # between two questions to tcpdump, and for it to answer one
TOTALS = ("frames", "dropped_kernel", "dropped_interface", "left_behind")


def tiers(scheduler: str, snaplen_bytes: int) -> list[Document]:
    """Return what each tcpdump records: name, file, filter and snaplen. Without a scheduler, one suffices."""
    if not scheduler:
        whole = {"name": "all", "file": "capture.pcap", "filter": "", "snaplen_bytes": snaplen_bytes}
        return [whole]
    return [
        {
            "name": "scheduler",
            "file": "capture.pcap",
            "filter": f"host {scheduler}",
            "snaplen_bytes": WHOLE_BYTES,
        },
        {
            "name": "others",
            "file": "capture-others.pcap",
            "filter": f"not host {scheduler}",
            "snaplen_bytes": snaplen_bytes,
        },
    ]


def log_of(tier: Document) -> Path:
    """Return the file that a tier's tcpdump writes its messages to."""
    return RUNTIME / f"capture-{tier['name']}.log"


def start(ttl_s: float, snaplen_bytes: int = 512, buffer_mib: int = 32, file_max_mb: int = 4000) -> Document:
    """Start both tiers; returns when both listen.

    Args:
        ttl_s: seconds until the capture ends in any case.
        snaplen_bytes: bytes to keep of frames that do not concern the scheduler.
        buffer_mib: tcpdump's buffer in the kernel.
        file_max_mb: size at which a file ends.
    """
    stop_units(UNIT.format(name="*"))
    RUNTIME.mkdir(parents=True, exist_ok=True)
    TRIAL.mkdir(parents=True, exist_ok=True)
    before = observe()
    started = tiers(host()["scheduler_address"], snaplen_bytes)
    STATE.write_text(json.dumps({"snaplen_bytes": snaplen_bytes, "tiers": started, "before": before}))
    for tier in started:
        log_of(tier).unlink(missing_ok=True)
        start_tier(tier, before["name"], ttl_s, buffer_mib, file_max_mb)
    try:
        for tier in started:
            wait_until_listening(tier)
    except HostError:
        reset()
        raise
    return show()


def start_tier(tier: Document, device: str, ttl_s: float, buffer_mib: int, file_max_mb: int) -> None:
    """Start one tcpdump as a unit."""
    options = [
        "-n",
        "-Z",
        "root",
        "-i",
        device,
        "-s",
        str(tier["snaplen_bytes"]),
        "-B",
        str(buffer_mib * 1024),
    ]
    start_unit(
        UNIT.format(**tier),
        ["tcpdump", *options, "-w", str(TRIAL / tier["file"]), *filter(None, [tier["filter"]])],
        RuntimeMaxSec=ttl_s,
        Nice=-15,  # before the workload: what is not written in time is lost
        LimitFSIZE=file_max_mb * 1_000_000,
        StandardError=f"file:{log_of(tier)}",
        KillSignal="SIGINT",  # on which tcpdump writes its buffer and its counters
        TimeoutStopSec=SETTLE_S,
    )


def wait_until_listening(tier: Document) -> None:
    """Wait until a tier's tcpdump reports that it listens.

    Raises:
        HostError: it does not, with its own words.
    """
    log, deadline = log_of(tier), time.monotonic() + LISTEN_TIMEOUT_S
    while "listening on" not in read(log):
        if time.monotonic() > deadline:
            raise HostError(f"tcpdump does not listen after {LISTEN_TIMEOUT_S} s: {read(log).strip()}")
        time.sleep(0.05)


def parse_counters(log: str) -> dict[str, int | None]:
    """Return tcpdump's own counters as it last printed them, None where it did not."""
    patterns = {
        "frames": r"(\d+) packets? captured",
        "received": r"(\d+) packets? received by filter",
        "dropped_kernel": r"(\d+) packets? dropped by kernel",
        "dropped_interface": r"(\d+) packets? dropped by interface",
    }
    printed = {key: re.findall(pattern, log) for key, pattern in patterns.items()}
    numbers = {key: int(values[-1]) if values else None for key, values in printed.items()}
    if numbers["frames"] is not None and numbers["dropped_interface"] is None:
        numbers["dropped_interface"] = 0  # tcpdump omits the line when there are none
    return numbers


def left_behind(numbers: dict[str, int | None]) -> int | None:
    """Return the frames that the kernel has and tcpdump has not written; None when unknown."""
    frames, received, dropped = (numbers[key] for key in ("frames", "received", "dropped_kernel"))
    if frames is None or received is None or dropped is None:
        return None
    return max(0, received - dropped - frames)


def total(parts: Sequence[Document], key: str) -> int | None:
    """Return the sum of a counter over the tiers; None when any is unknown."""
    values = [part[key] for part in parts]
    return None if None in values else sum(values)


def observe() -> Document:
    """Return the capture interface and the counters of dropped frames.

    Raises:
        HostError: the host has no capture interface, or it is down.
    """
    link = capture_link(host(), interfaces())
    if link is None:
        raise HostError("this host has no capture interface; set capture_interface or capture_mac")
    if "UP" not in link["flags"]:
        raise HostError(f"the capture interface {link['ifname']} is down; role guest brings it up")
    return {"time": time.time(), "softnet_dropped": softnet_dropped(), **interface(link)}


def is_recording(tier: Document) -> bool:
    """Return whether a tier's tcpdump runs."""
    return is_active(UNIT.format(**tier))


def settle(running: Sequence[Document]) -> None:
    """Wait until every tcpdump has written what the kernel has for it. It prints its counters on SIGUSR1."""
    deadline = time.monotonic() + SETTLE_S
    for tier in running:
        while is_recording(tier) and time.monotonic() < deadline:
            argv = ["systemctl", "kill", "--signal=USR1", UNIT.format(**tier)]
            subprocess.run(argv, capture_output=True, check=False)
            time.sleep(POLL_S)
            if left_behind(parse_counters(read(log_of(tier)))) == 0:
                break


def stop() -> Document:
    """End the capture and return its report.

    Raises:
        HostError: no capture was started.
    """
    if not STATE.exists():
        raise HostError("no capture was started on this host")
    state = json.loads(STATE.read_text())
    expired = not all(map(is_recording, state["tiers"]))
    settle(state["tiers"])
    promiscuity = observe()["promiscuity"]
    reset()
    return report(state, observe(), promiscuity, expired)


def report(state: Document, after: Document, promiscuity: int, expired: bool) -> Document:
    """Return what was recorded and what was dropped, from the counters before and after."""
    before = state["before"]
    parts = []
    for tier in state["tiers"]:
        numbers = parse_counters(read(log_of(tier)))
        size = (TRIAL / tier["file"]).stat().st_size
        parts.append({**tier, **numbers, "left_behind": left_behind(numbers), "bytes": size})
    nic = {key: after["statistics"][key] - value for key, value in before["statistics"].items()}
    return {
        "interface": before["name"],
        "driver": before["driver"],
        "promiscuity": promiscuity,
        "start": before["time"],
        "stop": after["time"],
        "expired": expired,
        "snaplen": state["snaplen_bytes"],
        "filter": " | ".join(part["filter"] for part in parts),
        **{key: total(parts, key) for key in TOTALS},
        "softnet_dropped": after["softnet_dropped"] - before["softnet_dropped"],
        "nic_statistics": {key: value for key, value in nic.items() if value},
        "tiers": parts,
    }


def show() -> Document:
    """Return the tiers that are recording."""
    if not STATE.exists():
        return {"running": []}
    state = json.loads(STATE.read_text())
    return {
        "running": [tier["name"] for tier in state["tiers"] if is_recording(tier)],
        "promiscuity": observe()["promiscuity"],
        **state,
    }


def reset() -> None:
    """Stop every capture of this program."""
    stop_units(UNIT.format(name="*"))
    STATE.unlink(missing_ok=True)


STEPS = {"start": start, "stop": stop, "show": show}
