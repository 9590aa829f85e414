"""What this machine lacks for minipve: programs by purpose, devices, kernel features."""

from __future__ import annotations

from dataclasses import dataclass, field

from minipve import process
from minipve.image import golden
from minipve.lxc import support
from minipve.network import namespace
from minipve.paths import Paths
from minipve.qemu import accel
from minipve.user_error import UserError

PURPOSES = {
    "endpoint": ("bridge", "ip", "nc", "nsenter", "tc", "unshare"),
    "virtual machines": ("qemu-img", "qemu-nbd", "qemu-system-x86_64", "setsid", "xorriso"),
    "containers": ("lxc-start", "lxc-usernsexec", "tar", "zstd"),
    "image build": ("debugfs", "mke2fs", "mmdebstrap", "newuidmap", "tar", "zstd"),
}
REQUIRED = ("endpoint", "virtual machines")
"""The purposes without which ``minipve check`` fails."""


@dataclass
class Report:
    """The result of a check: its lines, the Debian packages to install, and whether minipve can work."""

    lines: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    usable: bool = True

    def add(self, status: str, text: str) -> None:
        self.lines.append(f"{status:8} {text}")


def check(paths: Paths) -> Report:
    """Check programs, /dev/net/tun, accelerator and containers."""
    report = Report()
    missing = {purpose: _missing(programs) for purpose, programs in PURPOSES.items()}
    for purpose, programs in missing.items():
        if programs:
            report.add("missing", f"{purpose}: {', '.join(programs)}")
        else:
            report.add("ok", purpose)
    report.packages = sorted({process.PACKAGES[program] for names in missing.values() for program in names})
    report.usable = not any(missing[purpose] for purpose in REQUIRED) and _check_tun(report)
    if not missing["virtual machines"]:
        _add_accelerator(report, paths)
    if not missing["containers"] and (reason := support.problem()):
        report.add("missing", f"containers: {reason}")
    if report.usable and (impairments := namespace.missing_impairments()):
        report.add("note", f"containers: {impairments}")
    if golden.image_path(paths).exists():
        report.add("ok", "guests' image")
    else:
        report.add("note", "guests' image: not built; run: minipve image")
    return report


def _missing(programs: tuple[str, ...]) -> list[str]:
    return [program for program in programs if process.which(program) is None]


def _check_tun(report: Report) -> bool:
    try:
        namespace.require_tun()
    except UserError as error:
        report.add("missing", str(error))
        return False
    return True


def _add_accelerator(report: Report, paths: Paths) -> None:
    accelerator = accel.probe(paths)
    report.add("ok", f"accelerator {accelerator.name}: {accelerator.reason}")
    if accelerator.name == "tcg":
        report.add("note", "virtual machines are emulated, at about 10 % of native speed; containers are not")
