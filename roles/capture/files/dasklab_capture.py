#!/usr/bin/python3 -SsE
"""Record the frames of the lab bridge on this host's capture interface, in two tiers.

    dasklab_capture.py start '{"ttl_s": 600, "snaplen_bytes": 512, "buffer_mib": 32, "file_max_mb": 2000}'
    dasklab_capture.py stop     the files are complete; prints the counters, also kept in capture.json
    dasklab_capture.py show

What goes to or comes from the scheduler is kept whole: there are Dask's operations, and a cut frame hides
them. Of all else, which is mostly array data, the first ``snaplen_bytes`` of each frame are kept. A TCP
connection is always in one file only. Each tier is a tcpdump in a transient systemd unit that ends after
``ttl_s``, whatever became of the one who started it.

Dropped frames are told by three counters: tcpdump's (its buffer was full), the interface's, and the kernel's
per-CPU backlog (``softnet_dropped``), which neither of the others sees. ``left_behind`` are frames that the
kernel had for tcpdump and tcpdump did not write.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from dasklab_common import (
    HostError,
    addresses,
    capture_link,
    config,
    interface,
    main,
    read,
    run,
    softnet_dropped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dasklab_common import Document

DIRECTORY = Path("/var/lib/dasklab/capture")
STATE, REPORT = DIRECTORY / "state.json", DIRECTORY / "capture.json"
UNIT = "dasklab-capture-{name}.service"
WHOLE_BYTES = 262_144  # tcpdump's own maximum, more than any super-frame
READY_S = 30  # for tcpdump to listen; an emulated machine needs a few
# tcpdump gets frames from the kernel in blocks, a second late or, when busy, later; a stop before loses them.
SETTLE_S = 20
ASK_S = 0.2  # between two questions to tcpdump, and for it to answer one
COUNTED = ("frames", "dropped_kernel", "dropped_interface", "left_behind")


def tiers(scheduler: str, snaplen_bytes: int) -> list[Document]:
    """Return what each tcpdump records: its name, file, filter and snaplen (pure)."""
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
    """Return where a tier's tcpdump says what it has to say (pure)."""
    return DIRECTORY / f"{tier['name']}.log"


def command(tier: Document, device: str, asked: Document) -> list[str]:
    """Return the command that starts a tier's tcpdump as a unit with a time-to-live (pure)."""
    file, log = DIRECTORY / tier["file"], log_of(tier)
    properties = [
        f"RuntimeMaxSec={asked['ttl_s']}",
        "Nice=-15",  # before the workload: what is not written in time is lost
        f"LimitFSIZE={asked['file_max_mb'] * 1_000_000}",
        f"StandardError=file:{log}",
        "KillSignal=SIGINT",  # on which tcpdump writes out what it has, and its counters
        f"TimeoutStopSec={SETTLE_S}",  # and is killed if it does not
    ]
    unit = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT.format(**tier)}"]
    kept = ["-s", str(tier["snaplen_bytes"]), "-B", str(asked["buffer_mib"] * 1024)]
    tcpdump = ["tcpdump", "-n", "-Z", "root", "-i", device, *kept, "-w", str(file), tier["filter"]]
    return [*unit, *(f"--property={text}" for text in properties), *tcpdump]


def counters(log: str) -> dict[str, int | None]:
    """Return tcpdump's own counters as it last said them; None where it did not (pure)."""
    patterns = {
        "frames": r"(\d+) packets? captured",
        "received": r"(\d+) packets? received by filter",
        "dropped_kernel": r"(\d+) packets? dropped by kernel",
        "dropped_interface": r"(\d+) packets? dropped by interface",
    }
    found = {key: re.findall(pattern, log) for key, pattern in patterns.items()}
    numbers = {key: int(said[-1]) if said else None for key, said in found.items()}
    if numbers["frames"] is not None and numbers["dropped_interface"] is None:
        numbers["dropped_interface"] = 0  # tcpdump leaves the line out when there are none
    return numbers


def left_behind(numbers: dict[str, int | None]) -> int | None:
    """Return how many frames the kernel has that tcpdump has not written; None when unknown (pure)."""
    frames, received, dropped = (numbers[key] for key in ("frames", "received", "dropped_kernel"))
    if frames is None or received is None or dropped is None:
        return None
    return max(0, received - dropped - frames)


def total(parts: list[Document], key: str) -> int | None:
    """Return the sum of a counter over the tiers; None when any is unknown (pure)."""
    values = [part[key] for part in parts]
    return None if None in values else sum(values)


def observe() -> Document:
    """Return the capture interface and the counters of dropped frames."""
    link = capture_link(config(), addresses())
    if link is None:
        raise HostError("this host has no capture interface")
    if "UP" not in link["flags"]:
        raise HostError(f"the capture interface {link['ifname']} is down: run `dasklab up --only configure`")
    return {"time": time.time(), "softnet_dropped": softnet_dropped(), **interface(link)}


def active(tier: Document) -> bool:
    """Tell whether a tier's tcpdump runs."""
    asked = ["systemctl", "is-active", "--quiet", UNIT.format(**tier)]
    return subprocess.run(asked, check=False).returncode == 0


def start(asked: Document) -> Document:
    """Start both tiers from nothing; returns when both listen."""
    end()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    before = observe()
    wanted = tiers(config()["scheduler_address"], asked["snaplen_bytes"])
    STATE.write_text(json.dumps({"asked": asked, "tiers": wanted, "before": before}))
    for tier in wanted:
        run(command(tier, before["name"], asked))
    try:
        for tier in wanted:
            listen(tier)
    except HostError:
        end()
        raise
    return show()


def listen(tier: Document) -> None:
    """Wait until a tier's tcpdump says that it listens."""
    log, until = log_of(tier), time.monotonic() + READY_S
    while "listening on" not in read(log):
        if time.monotonic() > until:
            raise HostError(f"tcpdump does not listen after {READY_S} s: {read(log).strip()}")
        time.sleep(0.05)


def settle(wanted: list[Document]) -> None:
    """Wait until every tcpdump has written what the kernel had for it: on SIGUSR1 it says its counters."""
    until = time.monotonic() + SETTLE_S
    for tier in wanted:
        while active(tier) and time.monotonic() < until:
            asked = ["systemctl", "kill", "--signal=USR1", UNIT.format(**tier)]
            subprocess.run(asked, capture_output=True, check=False)
            time.sleep(ASK_S)
            if left_behind(counters(read(log_of(tier)))) == 0:
                break


def end() -> None:
    """End whatever capture runs."""
    if STATE.exists():
        units = [UNIT.format(**tier) for tier in json.loads(STATE.read_text())["tiers"]]
        # A unit that ended by itself, or by its time-to-live, is unknown to systemd.
        subprocess.run(["systemctl", "stop", *units], capture_output=True, check=False)


def stop() -> Document | None:
    """End the capture and return its report; without a capture, None."""
    if not STATE.exists():
        return None
    if REPORT.exists():
        reported: Document = json.loads(REPORT.read_text())
        return reported
    state = json.loads(STATE.read_text())
    expired = not all(map(active, state["tiers"]))
    settle(state["tiers"])
    promiscuity = observe()["promiscuity"]
    end()
    answer = report(state, observe(), promiscuity, expired)
    REPORT.write_text(json.dumps(answer))
    return answer


def report(state: Document, after: Document, promiscuity: int, expired: bool) -> Document:
    """Return what was recorded and what was dropped, from the counters before and after."""
    before = state["before"]
    parts = []
    for tier in state["tiers"]:
        numbers = counters(read(log_of(tier)))
        size = (DIRECTORY / tier["file"]).stat().st_size
        parts.append({**tier, **numbers, "left_behind": left_behind(numbers), "bytes": size})
    nic = {key: after["statistics"][key] - value for key, value in before["statistics"].items()}
    return {
        "interface": before["name"],
        "driver": before["driver"],
        "promiscuity": promiscuity,
        "start": before["time"],
        "stop": after["time"],
        "expired": expired,
        "snaplen": state["asked"]["snaplen_bytes"],
        "filter": " | ".join(part["filter"] for part in parts),
        **{key: total(parts, key) for key in COUNTED},
        "softnet_dropped": after["softnet_dropped"] - before["softnet_dropped"],
        "nic_statistics": {key: value for key, value in nic.items() if value},
        "tiers": parts,
    }


def show() -> Document:
    """Return what is being captured."""
    if not STATE.exists():
        return {"running": []}
    state = json.loads(STATE.read_text())
    return {
        "running": [tier["name"] for tier in state["tiers"] if active(tier)],
        "promiscuity": observe()["promiscuity"],
        **state,
    }


def answer(argv: list[str]) -> Document | None:
    """Do what the command line says and return the answer."""
    if len(argv) == 2 and argv[0] == "start":
        return start(json.loads(argv[1]))
    if argv == ["stop"]:
        return stop()
    if argv == ["show"]:
        return show()
    return sys.exit(__doc__)


if __name__ == "__main__":
    main(answer)
