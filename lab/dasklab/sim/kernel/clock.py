"""Replace everything that differs between two runs of a program: clocks, sleep, UUIDs, dice, the process id.

A module that did ``from time import time`` before keeps the real clock. Whatever is to live in virtual time
must therefore be imported inside ``virtual_time``, and a simulation needs a process of its own.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from dasklab.sim.kernel.kernel import Kernel

EPOCH_S = 1_600_000_000  # what time.time() returns when a simulation begins


@contextmanager
def virtual_time(kernel: Kernel, seed: int = 0) -> Iterator[None]:
    """Make ``time``, ``uuid``, ``random`` and ``os.getpid`` follow the kernel and the seed until the exit."""
    replacements: dict[Any, dict[str, Any]] = {
        time: _clocks(kernel),
        uuid: _identifiers(seed),
        os: {"getpid": lambda: 1},  # Dask sends it, and its length varies
    }
    originals = {
        module: {name: getattr(module, name) for name in names} for module, names in replacements.items()
    }
    dice = random.getstate()
    random.seed(seed)
    try:
        _set_attributes(replacements)
        yield
    finally:
        _set_attributes(originals)
        random.setstate(dice)


def _set_attributes(modules: dict[Any, dict[str, Any]]) -> None:
    for module, names in modules.items():
        for name, value in names.items():
            setattr(module, name, value)


def _clocks(kernel: Kernel) -> dict[str, Any]:
    def since_epoch() -> float:
        return EPOCH_S + kernel.clock()

    def elapsed() -> float:
        return kernel.clock()

    return {
        "time": since_epoch,
        "time_ns": lambda: int(since_epoch() * 1e9),
        "monotonic": elapsed,
        "monotonic_ns": lambda: int(elapsed() * 1e9),
        "perf_counter": elapsed,
        "perf_counter_ns": lambda: int(elapsed() * 1e9),
        "sleep": kernel.sleep,
    }


def _identifiers(seed: int) -> dict[str, Any]:
    dice = Random(f"identifiers {seed}")

    def identifier(*_: Any, **__: Any) -> uuid.UUID:
        return uuid.UUID(int=dice.getrandbits(128), version=4)

    return {"uuid1": identifier, "uuid4": identifier}
