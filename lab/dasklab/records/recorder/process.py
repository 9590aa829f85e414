"""What the operating system and Dask's configuration say of this process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SECRET = re.compile(r"environ|password|token|secret", re.IGNORECASE)
CREDENTIALS = re.compile(r"(\w+://)[^/@\s\"]*@")
NAN = float("nan")


def without_credentials(text: str) -> str:
    """Remove names and passwords from URLs."""
    return CREDENTIALS.sub(r"\1", text)


def settings(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """All settings below a node of Dask's configuration, except what may be secret."""
    if isinstance(node, Mapping) and node:
        for name, below in node.items():
            if not SECRET.search(str(name)):
                yield from settings(below, f"{path}.{name}" if path else str(name))
    else:
        yield path, node


def cpu_times(loop_thread: int) -> tuple[float, float, float]:
    """Return the seconds for which this process's threads ran and waited for a CPU, and its loop waited."""
    ran = waited = loop_waited = 0.0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        try:
            on_cpu, in_queue, _ = map(int, thread.read_text().split())
        except (OSError, ValueError):  # a thread may end meanwhile
            continue
        ran, waited = ran + on_cpu / 1e9, waited + in_queue / 1e9
        if thread.parent.name == str(loop_thread):
            loop_waited = in_queue / 1e9
    return ran or sum(os.times()[:2]), waited, loop_waited


def resident_bytes() -> float:
    try:
        return float(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return NAN
