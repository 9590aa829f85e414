"""The network namespace of a node, in which its bridges, taps, QEMU processes and containers live.

An ordinary user gets a user namespace around it, in which the user is root over this network only. A holder
process (`sleep infinity`) keeps the namespace open. The kernel removes it with the last process inside: the
holder, the endpoint or a guest.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.errors import UserError
from minipve.base.paths import Paths

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
HOLD = ["sleep", "infinity"]
TRAFFIC_CONTROL = {
    "netem": (
        "no netem (delay, jitter, loss, reordering); virtual machines have it in their own kernel",
        "tc qdisc add dev lo root netem delay 1ms",
    ),
    "police": (
        "no policer (act_police); a token bucket without a queue replaces it",
        "tc qdisc add dev lo ingress && "
        "tc filter add dev lo parent ffff: matchall action police rate 1mbit burst 10k drop",
    ),
}
"""What a container's link may need of the kernel -> what its absence means, and a command that tries it."""
SET_UP = """
ip link set lo up || exit 1
for scope in all default; do
    file=/proc/sys/net/ipv6/conf/$scope/disable_ipv6
    [ ! -e $file ] || echo 1 > $file
done
echo ready
"""


@dataclass(frozen=True)
class Namespace:
    """A node's namespace; process ``pid`` holds it open. ``rootless``: a user namespace is around it."""

    paths: Paths
    pid: int
    rootless: bool

    def argv(self, command: list[str]) -> list[str]:
        """Return the command that runs ``command`` in the namespace."""
        return [*enter_words(self.pid, self.rootless), *command]

    @property
    def inside(self) -> bool:
        """Whether the calling process is in this namespace."""
        return Path("/proc/self/ns/net").readlink() == Path(f"/proc/{self.pid}/ns/net").readlink()

    def write_scripts(self) -> None:
        """Write ``enter-shell`` and ``connect``, by which users reach the namespace."""
        enter = " ".join(shlex.quote(word) for word in enter_words(self.pid, self.rootless))
        _write_script(self.paths.enter_shell, f'exec {enter} /bin/sh "$@"')
        _write_script(self.paths.connect, f'exec {enter} nc -N "$1" "$2"')

    def destroy(self) -> None:
        """End the holder and remove the scripts. Nothing else may run in the namespace any more."""
        process.end(self.pid, timeout_s=2)
        for file in (holder_file(self.paths), self.paths.enter_shell, self.paths.connect):
            file.unlink(missing_ok=True)


def holder_file(paths: Paths) -> Path:
    """The file that names the holder process."""
    return paths.run / "namespace.pid"


def find(paths: Paths) -> Namespace | None:
    """Return the node's namespace, or None if it does not exist."""
    pid = process.recall(holder_file(paths))
    return None if pid is None else Namespace(paths, pid, _rootless_of(pid))


def ensure(paths: Paths, inside: Iterable[int] = ()) -> Namespace:
    """Return the first node's namespace, created if it does not exist, and write its scripts.

    If the holder died while a process of ``inside`` lives, the namespace still exists and gets a new holder.
    """
    namespace = find(paths) or _reopen(paths, inside) or _create(paths)
    namespace.write_scripts()
    return namespace


def ensure_further(paths: Paths, inside: Iterable[int], first: Namespace) -> Namespace:
    """Like `ensure`, for a further node: its namespace shares the user namespace of the ``first`` node's."""
    namespace = find(paths) or _reopen(paths, inside)
    if namespace is None:
        words = first.argv(create_words(rootless=False))
        namespace = Namespace(paths, _start_holder(paths, words, first.rootless), first.rootless)
    namespace.write_scripts()
    return namespace


def handle(paths: Paths) -> int:
    """Open the node's network namespace, for `enter`; the calling process's own if it does not exist."""
    namespace = find(paths)
    return os.open(f"/proc/{namespace.pid if namespace else 'self'}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int) -> None:
    """Move the calling thread, and what it will start, into a network namespace."""
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def enter_words(pid: int, rootless: bool) -> list[str]:
    """Return the words before a command that run it in the namespace of process ``pid`` (pure)."""
    if rootless:
        return ["nsenter", f"--target={pid}", "--user", "--net", "--preserve-credentials", "--"]
    return ["nsenter", f"--target={pid}", "--net", "--"]


def create_words(rootless: bool) -> list[str]:
    """Return the command that creates a namespace, prints ``ready`` and then holds it open (pure)."""
    user = ["--user", "--map-root-user"] if rootless else []
    return ["unshare", *user, "--net", "--", "/bin/sh", "-c", f"{SET_UP}exec {' '.join(HOLD)}"]


def missing_impairments() -> list[str]:
    """Return the names in TRAFFIC_CONTROL that this kernel cannot do, each tried in a new namespace."""
    return [name for name, (_, line) in TRAFFIC_CONTROL.items() if _try(line).returncode]


def require_network() -> None:
    """Raise UserError, with what helps, if this user cannot create a network namespace."""
    attempt = _try("true")
    if attempt.returncode:
        raise _refused(attempt.stderr, rootless=os.geteuid() != 0)


def can_create() -> bool:
    """Return whether this user can create a network namespace, in which the kernel can be tried."""
    return not (process.which("unshare") is None or process.which("tc") is None or _try("true").returncode)


def _try(line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in a network namespace that ends with it."""
    user = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    return subprocess.run(
        ["unshare", *user, "--net", "/bin/sh", "-c", line], capture_output=True, env=_environment()
    )


def require_tun() -> None:
    """UserError, with what helps, if this user cannot create taps."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except FileNotFoundError as error:
        raise UserError(
            "/dev/net/tun does not exist: the kernel has no tun driver", "modprobe tun"
        ) from error
    except OSError as error:
        raise UserError(
            f"/dev/net/tun cannot be opened: {error.strerror}",
            "chmod 0666 /dev/net/tun   (Debian's default), or run as root",
        ) from error


def _create(paths: Paths) -> Namespace:
    process.require_tools("unshare", "nsenter", "ip", "tc", "nc")
    require_tun()
    rootless = os.geteuid() != 0
    return Namespace(paths, _start_holder(paths, create_words(rootless), rootless), rootless)


def _reopen(paths: Paths, inside: Iterable[int]) -> Namespace | None:
    """Start a new holder in the namespace of the first process of ``inside``; None if there is none."""
    pid = next(iter(inside), None)
    if pid is None:
        return None
    rootless = _rootless_of(pid)
    words = [*enter_words(pid, rootless), "/bin/sh", "-c", f"echo ready; exec {' '.join(HOLD)}"]
    return Namespace(paths, _start_holder(paths, words, rootless), rootless)


def _start_holder(paths: Paths, words: list[str], rootless: bool) -> int:
    """Start a holder process, wait until it prints ``ready``, and note it; returns its pid."""
    holder = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )
    assert holder.stdout is not None and holder.stderr is not None
    with holder.stdout as output, holder.stderr as errors:
        if output.readline() != b"ready\n":
            raise _refused(errors.read(), rootless)
    process.remember(holder.pid, holder_file(paths))
    holder.returncode = 0  # it outlives us on purpose: no ResourceWarning when the handle goes
    return holder.pid


def _rootless_of(pid: int) -> bool:
    """Whether a process is in a user namespace from `create_words`, which maps a single user id."""
    return Path(f"/proc/{pid}/uid_map").read_text().split()[2] == "1"


def _environment() -> dict[str, str]:
    """Return our environment with the folders of tc and ip, which a user's PATH may lack."""
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def _refused(output: bytes, rootless: bool) -> UserError:
    """Return the error for a namespace that was not created, from what unshare printed."""
    return UserError(f"no network namespace: {_last_line(output)}", _remedy(rootless))


def _remedy(rootless: bool) -> str:
    if rootless:
        return "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, or run as root"
    return "this needs CAP_SYS_ADMIN; if minipve runs in a container, start that with --privileged"


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["unshare printed nothing"])[-1]


def _write_script(file: Path, line: str) -> None:
    write_atomic(file, f"#!/bin/sh\n{line}\n", 0o755)  # atomic: somebody may be running the old one
