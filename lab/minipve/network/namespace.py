"""The lab's own network: bridges, taps and QEMU live in a network namespace, not in the host's.

As root it is a plain network namespace; an ordinary user gets a user namespace around it, in which the
user is root over that network alone. A process that does nothing holds it open (`sleep infinity`): the
namespace lives while that process, the endpoint or a machine lives, and vanishes with the last of them.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from minipve import process
from minipve.atomic import write_atomic
from minipve.paths import Paths
from minipve.user_error import UserError

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
HOLD = ["sleep", "infinity"]
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
    """A network namespace (and around it, for an ordinary user, a user namespace) held by process ``pid``."""

    paths: Paths
    pid: int
    rootless: bool

    def argv(self, command: list[str]) -> list[str]:
        """``command`` inside the namespace, as seen from outside."""
        return [*enter_words(self.pid, self.rootless), *command]

    @property
    def inside(self) -> bool:
        """Whether the calling process is in the namespace already."""
        return Path("/proc/self/ns/net").readlink() == Path(f"/proc/{self.pid}/ns/net").readlink()

    def write_scripts(self) -> None:
        """Write ``enter-shell`` and ``connect``, the two doors into the namespace."""
        enter = " ".join(shlex.quote(word) for word in enter_words(self.pid, self.rootless))
        _script(self.paths.enter_shell, f'exec {enter} /bin/sh "$@"')
        _script(self.paths.connect, f'exec {enter} nc -N "$1" "$2"')

    def destroy(self) -> None:
        """End the holder and remove the scripts; whatever else runs inside must have been ended before."""
        process.end(self.pid, timeout_s=2)
        for file in (holder_file(self.paths), self.paths.enter_shell, self.paths.connect):
            file.unlink(missing_ok=True)


def holder_file(paths: Paths) -> Path:
    """Where the holder is written down."""
    return paths.run / "namespace.pid"


def find(paths: Paths) -> Namespace | None:
    """The instance's namespace when it exists."""
    pid = process.recall(holder_file(paths))
    return None if pid is None else Namespace(paths, pid, _rootless_of(pid))


def ensure(paths: Paths, inside: Iterable[int] = ()) -> Namespace:
    """The instance's namespace, made when it does not exist; its scripts are written in any case.

    A holder that died has not taken the namespace along while a process ``inside`` lives: it gets a new one.
    """
    namespace = find(paths) or next((_hold_again(paths, pid) for pid in inside), None) or _create(paths)
    namespace.write_scripts()
    return namespace


def ensure_beside(paths: Paths, inside: Iterable[int], first: Namespace) -> Namespace:
    """The namespace of a further node, where the ``first`` one's user may work in both."""
    beside = find(paths) or next((_hold_again(paths, pid) for pid in inside), None)
    if beside is None:
        words = first.argv(create_words(rootless=False))
        beside = Namespace(paths, _hold(paths, words, first.rootless), first.rootless)
    beside.write_scripts()
    return beside


def handle(paths: Paths) -> int:
    """An open descriptor of the instance's network namespace, for ``enter``."""
    held = find(paths)
    return os.open(f"/proc/{held.pid if held else 'self'}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int) -> None:
    """Bring the calling thread into a network namespace; what it starts is there too."""
    if _libc.setns(descriptor, _NEW_NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def enter_words(pid: int, rootless: bool) -> list[str]:
    """The words before a command that bring it into the namespace of process ``pid`` (pure)."""
    if rootless:
        return ["nsenter", f"--target={pid}", "--user", "--net", "--preserve-credentials", "--"]
    return ["nsenter", f"--target={pid}", "--net", "--"]


def create_words(rootless: bool) -> list[str]:
    """The command that makes the namespace, says ``ready`` and then holds it open (pure)."""
    user = ["--user", "--map-root-user"] if rootless else []
    return ["unshare", *user, "--net", "--", "/bin/sh", "-c", f"{SET_UP}exec {' '.join(HOLD)}"]


def lost_impairments() -> str:
    """What this kernel cannot do to a container's link, found by trying on another one; empty if nothing."""
    qdisc = "tc qdisc add dev lo"
    tries = {
        "delay, jitter, loss, reordering (sch_netem)": f"{qdisc} root netem delay 1ms",
        "policer (act_police; a bucket without a queue is in its place)": f"{qdisc} ingress && "
        "tc filter add dev lo parent ffff: matchall action police rate 1mbit burst 10k drop",
    }
    user = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    lost = [
        name
        for name, line in tries.items()
        if subprocess.run(["unshare", *user, "--net", "/bin/sh", "-c", line], capture_output=True).returncode
    ]
    return f"this kernel has no {', no '.join(lost)}" if lost else ""


def require_tun() -> None:
    """Refuse with the line that mends it when taps cannot be made here."""
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
    process.need("unshare", "nsenter", "ip", "tc", "nc")
    require_tun()
    rootless = os.geteuid() != 0
    return Namespace(paths, _hold(paths, create_words(rootless), rootless), rootless)


def _hold_again(paths: Paths, pid: int) -> Namespace:
    """Hold the namespace in which process ``pid`` is."""
    rootless = _rootless_of(pid)
    words = [*enter_words(pid, rootless), "/bin/sh", "-c", f"echo ready; exec {' '.join(HOLD)}"]
    return Namespace(paths, _hold(paths, words, rootless), rootless)


def _hold(paths: Paths, words: list[str], rootless: bool) -> int:
    """Start the process that holds a namespace open, and write it down; it says ``ready`` first."""
    holder = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env={**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"},
    )
    assert holder.stdout is not None and holder.stderr is not None
    with holder.stdout as said, holder.stderr as complaint:
        if said.readline() != b"ready\n":
            raise UserError(f"no network namespace: {_last_line(complaint.read())}", _remedy(rootless))
    process.remember(holder.pid, holder_file(paths))
    holder.returncode = 0  # it outlives us on purpose: no ResourceWarning when the handle goes
    return holder.pid


def _rootless_of(pid: int) -> bool:
    """Whether the holder sits in a user namespace of `create_words`: that one maps a single user id."""
    return Path(f"/proc/{pid}/uid_map").read_text().split()[2] == "1"


def _remedy(rootless: bool) -> str:
    if rootless:
        return "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, or run as root"
    return "this needs CAP_SYS_ADMIN; inside a container start it with --privileged"


def _last_line(said: bytes) -> str:
    return (said.decode(errors="replace").strip().splitlines() or ["unshare said nothing"])[-1]


def _script(file: Path, line: str) -> None:
    write_atomic(file, f"#!/bin/sh\n{line}\n", 0o755)  # another process may be running the old one
