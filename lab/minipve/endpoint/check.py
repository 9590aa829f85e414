"""What this machine lacks for minipve: programs by purpose, devices, kernel features, rights of this user."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from minipve.base import process
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.guests.lxc import limits
from minipve.guests.qemu import running
from minipve.image import golden
from minipve.network import namespace

PURPOSES = {
    "endpoint": ("bridge", "ip", "nc", "nsenter", "tc", "unshare"),
    "virtual machines": ("qemu-img", "qemu-system-x86_64", "setsid", "xorriso"),
    "containers": ("lxc-start", "lxc-usernsexec", "tar", "zstd"),
    "image build": ("debugfs", "mke2fs", "mmdebstrap", "newuidmap", "tar", "zstd"),
}
GUESTS = {"vm": "virtual machines", "container": "containers"}
"""Kind of guest -> its purpose above."""
REQUIRED = ("endpoint", "virtual machines")
"""The purposes without which ``minipve check`` fails, unless kinds of guest are given."""


@dataclass(frozen=True)
class Finding:
    """One line of a check: its status (``ok``, ``note`` or ``missing``), and what helps."""

    status: str
    text: str
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.status:8} {self.text}" + (f"\n  {self.fix}" if self.fix else "")


@dataclass
class Report:
    """The result of a check.

    Args:
        findings: its lines.
        packages: the Debian packages to install.
        usable: whether minipve can work.
        kernel_lacks: what the kernel, which containers share, cannot do to a link: ``netem``, ``police``.
    """

    findings: list[Finding] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    usable: bool = True
    kernel_lacks: list[str] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return [str(finding) for finding in self.findings]

    def add(self, status: str, text: str, fix: str | None = None) -> None:
        self.findings.append(Finding(status, text, fix))

    def require(self, check: Callable[[], None], *, always: bool = True) -> bool:
        """Run a check that raises what is missing. Unless it is ``always`` needed, minipve remains usable."""
        try:
            check()
        except UserError as error:
            self.add("missing", error.message, error.hint)
            self.usable = self.usable and not always
            return False
        return True


def check(paths: Paths, kinds: Collection[str] = ()) -> Report:
    """Check programs, rights, /dev/net/tun, accelerator and containers.

    Args:
        paths: where the image is.
        kinds: the kinds of guest that are needed, of GUESTS. Only their needs are then checked, and the
            report is usable only if nothing of them is missing. Without kinds, everything is checked.
    """
    report = Report()
    is_built = golden.image_path(paths).exists()
    purposes = _purposes(kinds, is_built)
    missing = {purpose: _missing(PURPOSES[purpose]) for purpose in purposes}
    problem = limits.problem() if "containers" in purposes and not missing["containers"] else ""
    for purpose, programs in missing.items():
        if programs:
            report.add("missing", f"not installed: {', '.join(programs)} ({purpose})")
        elif purpose != "containers" or not problem:
            report.add("ok", purpose)
    report.packages = sorted({process.PACKAGES[program] for names in missing.values() for program in names})
    report.usable = not any(missing[purpose] for purpose in (purposes if kinds else REQUIRED))
    if problem:
        report.add("missing", problem)
        report.usable = report.usable and "container" not in kinds
    as_this_user = not problem or "virtual machines" in purposes  # else it is root whose rights count
    if as_this_user and not missing["endpoint"] and report.require(namespace.require_tun):
        report.require(namespace.require_network)
    if "containers" in purposes:
        _add_impairments(report)
    if not missing.get("virtual machines", True):
        _add_accelerator(report, paths)
    _add_image(report, is_built, as_this_user, required=bool(kinds))
    return report


def _add_image(report: Report, is_built: bool, as_this_user: bool, *, required: bool) -> None:
    if is_built:
        report.add("ok", "guests' image")
    elif not as_this_user or report.require(limits.require_own_range, always=required):
        report.add("note", "guests' image: not built yet; that takes minutes: minipve image")


def _purposes(kinds: Collection[str], is_built: bool) -> tuple[str, ...]:
    if not kinds:
        return tuple(PURPOSES)
    guests = [purpose for kind, purpose in GUESTS.items() if kind in kinds]
    return ("endpoint", *guests, *([] if is_built else ["image build"]))


def _missing(programs: tuple[str, ...]) -> list[str]:
    return [program for program in programs if process.which(program) is None]


def _add_impairments(report: Report) -> None:
    if not namespace.can_create():
        return
    report.kernel_lacks = namespace.missing_impairments()
    for name in report.kernel_lacks:
        report.add("note", f"containers: this kernel has {namespace.TRAFFIC_CONTROL[name][0]}")


def _add_accelerator(report: Report, paths: Paths) -> None:
    accelerator = running.probe(paths)
    report.add("ok", f"accelerator {accelerator.name}: {accelerator.reason}")
    if accelerator.name == "tcg":
        report.add("note", "virtual machines are emulated, at about 10 % of native speed; containers are not")
