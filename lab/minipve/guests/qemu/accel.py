"""Choose the accelerator, KVM or TCG, by trying to boot a kernel under KVM.

Weaker tests are not reliable: on some nested clouds /dev/kvm opens, creates machines and runs their
firmware, and still a Linux kernel never boots. So the golden image's kernel is started under KVM without a
root file system. Where KVM works, the kernel boots in about a second and then panics, because it has no root
file system. The result is cached until the host reboots or QEMU changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.paths import Paths
from minipve.image import direct_boot

DEVICE = Path("/dev/kvm")
BOOT_TIMEOUT_S = 4.0
X86_64_V2 = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"  # QEMU 7.2 does not have Proxmox VE's name for it
EXPECTED_PANIC = "Unable to mount root fs"
_probe_lock = threading.Lock()  # machines that start together share one probe


@dataclass(frozen=True)
class Accel:
    """The accelerator to use, ``kvm`` or ``tcg``, and the reason."""

    name: str
    reason: str


def probe(paths: Paths) -> Accel:
    """Return the accelerator for this host. The result is kept until the host reboots or QEMU changes."""
    if problem := _opening_problem():
        return Accel("tcg", problem)
    cache, key = paths.cache / "accel.json", _key()
    with _probe_lock:
        if (result := _cached(cache)) and result.pop("key") == key:
            return Accel(**result)
        accel = _probe(paths)
        if accel is None:
            return Accel("tcg", "KVM has not been tried: there is no golden image yet")
        write_atomic(cache, json.dumps({"key": key, **asdict(accel)}))
    return accel


def _cached(file: Path) -> dict[str, str]:
    """Read an earlier result; empty if there is none or it is damaged."""
    try:
        result = json.loads(file.read_bytes())
        return {key: str(result[key]) for key in ("key", "name", "reason")}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def _probe(paths: Paths) -> Accel | None:
    """Boot the newest golden image's kernel (never an uploaded one); None if there is no golden image."""
    kernel = direct_boot.newest_kernel(paths)
    return _try_boot(kernel) if kernel else None


def _opening_problem() -> str | None:
    """Return why /dev/kvm cannot be opened, or None if it can."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as error:
        return f"{DEVICE} cannot be opened: {error.strerror}"
    return None


def _try_boot(kernel: Path) -> Accel:
    start = time.monotonic()
    words = probe_words(kernel)
    try:
        result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOOT_TIMEOUT_S)
        output = result.stdout or result.stderr
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    return judge(output.decode(errors="replace"), time.monotonic() - start)


def probe_words(kernel: Path) -> list[str]:
    """Return QEMU's command line for a kernel without a disk; its panic ends QEMU (pure)."""
    machine = ["-machine", "pc", "-accel", "kvm", "-cpu", X86_64_V2, "-m", "256", "-nodefaults"]
    console = ["-no-reboot", "-display", "none", "-serial", "stdio"]
    append = ["-append", "console=ttyS0 panic=-1 nokaslr mitigations=off"]
    return ["qemu-system-x86_64", *machine, *console, "-kernel", str(kernel), *append]


def judge(console: str, seconds: float) -> Accel:
    """Decide by what the kernel wrote to its console in ``seconds`` (pure)."""
    if EXPECTED_PANIC in console:
        return Accel("kvm", f"a kernel booted under KVM in {seconds:.1f} s")
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    last = f"its last line: {lines[-1][:80]}" if lines else "it printed nothing"
    return Accel("tcg", f"a kernel did not boot under KVM within {seconds:.0f} s ({last})")


def _key() -> str:
    """Return a text that changes when the host reboots or its QEMU is replaced."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    version = process.run(["qemu-system-x86_64", "--version"]).splitlines()[0]
    return f"{boot} {version}"
