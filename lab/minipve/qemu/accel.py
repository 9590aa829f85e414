"""KVM or TCG? Decided by booting a kernel, because nothing less proves anything.

/dev/kvm may open, create machines and even run their firmware, and yet an ordinary kernel never gets
anywhere (some nested clouds do that). So the golden image's kernel is started under KVM with no root file
system: on working hardware it gets as far as missing it in about a second. The answer holds until the
host or QEMU changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from minipve import process
from minipve.atomic import write_atomic
from minipve.image import direct_boot
from minipve.paths import Paths

DEVICE = Path("/dev/kvm")
_one_probe = threading.Lock()  # five machines started at once need one answer
PATIENCE_S = 4.0
MODEL = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"
REACHED = "Unable to mount root fs"


@dataclass(frozen=True)
class Accel:
    """The accelerator to use, ``kvm`` or ``tcg``, and why."""

    name: str
    reason: str


def probe(paths: Paths) -> Accel:
    """The accelerator for this host; a boot is tried once, then remembered until the host boots anew."""
    refusal = _opens()
    if refusal:
        return Accel("tcg", refusal)
    memory, key = paths.cache / "accel.json", _key()
    with _one_probe:
        if (known := _remembered(memory)) and known.pop("key") == key:
            return Accel(**known)
        accel = _probe(paths)
        if accel is None:
            return Accel("tcg", "KVM is not tried yet: there is no kernel to try it with")
        write_atomic(memory, json.dumps({"key": key, **asdict(accel)}))
    return accel


def _remembered(file: Path) -> dict[str, str]:
    try:
        known = json.loads(file.read_bytes())
        return {key: str(known[key]) for key in ("key", "name", "reason")}
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # never asked, or damaged: asked again
        return {}


def _probe(paths: Paths) -> Accel | None:
    """Try the newest golden image's kernel, never an uploaded one; None when there is no golden image."""
    images = sorted(paths.images.glob("*/dasklab-*.qcow2"), key=lambda file: file.stat().st_mtime)
    with direct_boot.cache_in_use(paths):
        boot = direct_boot.extract(images[-1], paths) if images else None
        return _boots(boot.kernel) if boot else None


def _opens() -> str | None:
    """Why KVM cannot even be opened; None when it can."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR))
    except OSError as error:
        return f"{DEVICE} cannot be opened: {error.strerror}"
    return None


def _boots(kernel: Path) -> Accel:
    began = time.monotonic()
    try:
        done = subprocess.run(
            probe_words(kernel), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S
        )
        said = done.stdout or done.stderr
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
    return judge(said.decode(errors="replace"), time.monotonic() - began)


def probe_words(kernel: Path) -> list[str]:
    """QEMU with nothing but a kernel, which panics for want of a root file system and so ends QEMU (pure)."""
    machine = ["-machine", "pc", "-accel", "kvm", "-cpu", MODEL, "-m", "256", "-nodefaults"]
    ends = ["-no-reboot", "-display", "none", "-serial", "stdio"]
    append = ["-append", "console=ttyS0 panic=-1 nokaslr mitigations=off"]
    return ["qemu-system-x86_64", *machine, *ends, "-kernel", str(kernel), *append]


def judge(console: str, seconds: float) -> Accel:
    """What a kernel's console says of KVM (pure)."""
    if REACHED in console:
        return Accel("kvm", f"a kernel booted under KVM in {seconds:.1f} s")
    lines = [line.strip() for line in console.splitlines() if line.strip()]
    got = f"it got to: {lines[-1][:80]}" if lines else "it said nothing"
    return Accel("tcg", f"a kernel did not boot under KVM within {seconds:.0f} s ({got})")


def _key() -> str:
    """Changes when the host is booted anew or its QEMU is another one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    version = process.run(["qemu-system-x86_64", "--version"]).splitlines()[0]
    return f"{boot} {version}"
