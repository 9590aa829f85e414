#!/usr/bin/python3 -SsE
"""Start Python programs as forks of one process that has imported Dask already.

    dasklab_forkserver.py -m dask worker ...          as `python -m dask worker ...` does
    dasklab_forkserver.py FILE ...                    as `python FILE ...` does
    PYTHON dasklab_forkserver.py --serve MODULE ...   the process itself, which systemd starts with its socket

To import Dask takes an emulated machine five seconds of its core, and each trial would do it anew on five at
once. A fork takes over the environment, directory, open files and control groups of who asks for it: its
service owns, ends and accounts for it as if it had started it. It ends with who asked, who ends with its
status. Dask reads settings while it is imported: who changes those, or anything that was imported, ends the
process, and the next connection starts another. Left alone it ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Fork = tuple[socket.socket, int]  # who asked for it, and its pid; known by its pidfd

SOCKET = "/run/dasklab/forkserver.sock"
LISTENING = 3  # the descriptor at which systemd hands over what listens there
IDLE_S = 3600
PR_SET_PDEATHSIG = 1  # of linux/prctl.h: a fork ends with its server
LOST = "dasklab_forkserver: the process that has imported Dask ended: journalctl -u dasklab-forkserver"


def ask(argv: Sequence[str], address: str = SOCKET) -> int | str:
    """Have a program started and wait for its end; returns its exit status, or why that is not known."""
    wanted = {"argv": argv, "environ": dict(os.environ), "cwd": str(Path.cwd())}
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(address)
            socket.send_fds(server, [b"\n"], [0, 1, 2])
            server.sendall(json.dumps(wanted).encode())
            server.shutdown(socket.SHUT_WR)
            status = server.recv(16)
    except OSError as error:
        return f"{LOST} ({error})"
    return int(status) if status else LOST


def serve(modules: Sequence[str]) -> Sequence[str]:
    """Import, then fork for each connection; returns only in a fork, with the arguments of its program."""
    import gc
    import importlib
    import select

    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    say_ready()
    listener = socket.socket(fileno=LISTENING)
    forks: dict[int, Fork] = {}
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    while ready := poll.poll(None if forks else IDLE_S):
        for fd in (fd for fd, _ in ready):
            if fd == LISTENING:
                connection, _ = listener.accept()
                server = os.getpid()
                pid = os.fork()
                if pid == 0:
                    poll.close()
                    for inherited in (listener, *(other for other, _ in forks.values())):
                        inherited.close()
                    return become(connection, server)
                pidfd = os.pidfd_open(pid)
                forks[pidfd] = connection, pid
                poll.register(pidfd, select.EPOLLIN)
                poll.register(
                    connection, select.EPOLLONESHOT
                )  # told of nothing but that its other end is gone
            elif fd in forks:
                for done in (fd, forks[fd][0]):  # forks have copies, so that closing would not do it
                    poll.unregister(done)
                reap(*forks.pop(fd))
                os.close(fd)
            else:
                end(forks, fd)
    return sys.exit(0)


def say_ready() -> None:
    """Tell systemd, which has who starts the service wait for it, in the words of sd_notify(3)."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(b"READY=1", address.replace("@", "\0", 1))


def reap(connection: socket.socket, pid: int) -> None:
    """Tell who asked for a program how it ended, in a shell's words."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with connection, suppress(OSError):  # nobody may wait for it any more
        connection.sendall(str(status if status >= 0 else 128 - status).encode())


def end(forks: Mapping[int, Fork], gone: int) -> None:
    """End the fork whose connection this is: who asked for it is gone."""
    for connection, pid in forks.values():
        if connection.fileno() == gone:
            os.kill(pid, signal.SIGKILL)


def become(connection: socket.socket, server: int) -> Sequence[str]:
    """Take over what who asks has, and return the program's arguments."""
    import ctypes
    import struct

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before that
        sys.exit(LOST)
    with connection:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        wanted = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
    join_groups(struct.unpack("3i", peer)[0])
    os.setsid()
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["environ"])
    argv: list[str] = wanted["argv"]
    return argv


def join_groups(pid: int) -> None:
    """Join a process in its control groups, of all hierarchies of either version that are there."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for hierarchy in (controllers.removeprefix("name="), "unified") if controllers else ("", "unified"):
            group = Path("/sys/fs/cgroup") / hierarchy / path.lstrip("/") / "cgroup.procs"
            with suppress(OSError):  # not mounted here, or not this one
                group.write_text("0")


def execute(argv: Sequence[str]) -> None:
    """Run a program as Python would that was started with these arguments."""
    import runpy

    if argv[0] == "-m":
        sys.argv, sys.path[0] = list(argv[1:]), str(Path.cwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = list(argv), str(Path(argv[0]).resolve().parent)
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] != "--serve":
        sys.exit(ask(sys.argv[1:]))
    execute(serve(sys.argv[2:]))
