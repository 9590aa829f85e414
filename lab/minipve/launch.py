"""Starting and ending an instance: everything that happens outside of the endpoint's own process.

Kept free of heavy imports, because ``serve`` on a running instance is part of every playbook run.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from minipve import process, state_folder
from minipve.network import namespace
from minipve.paths import Paths
from minipve.terminal import PREFIX
from minipve.user_error import UserError

START_S = 60.0
_MODULE = [sys.executable, "-m", "minipve"]


def lock_file(paths: Paths) -> Path:
    """The file that a running endpoint keeps locked; it says which process that is."""
    return paths.run / "endpoint.lock"


def log_file(paths: Paths) -> Path:
    """What the endpoint says."""
    return paths.log / "endpoint.log"


def endpoint_file(paths: Paths) -> Path:
    """Where an instance says how to reach it (0600)."""
    return paths.state / "endpoint.json"


def facts(paths: Paths) -> dict[str, Any]:
    """The contents of ``endpoint.json``; empty when the instance has never been started."""
    try:
        found = json.loads(endpoint_file(paths).read_bytes())
        return {key: found[key] for key in found} if found["ca_file"] else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # damaged: it is written anew at each start
        return {}


def _claim(paths: Paths) -> int | None:
    """Take the instance for this process; returns the lock's descriptor, or None when another has it."""
    state_folder.claim(paths)
    paths.run.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock_file(paths), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    process.remember(os.getpid(), lock_file(paths))  # exec keeps the process, and with it the lock
    return handle


def is_running(paths: Paths) -> bool:
    """True while an endpoint (answering or just starting) holds the instance."""
    return process.recall(lock_file(paths)) is not None


def answers(paths: Paths, timeout_s: float = 5.0) -> bool:
    """Whether the endpoint answers ``GET /version`` to root's token."""
    found = facts(paths)
    if not found:
        return False
    try:
        context = ssl.create_default_context(cafile=found["ca_file"])
        link = http.client.HTTPSConnection(found["host"], found["port"], timeout=timeout_s, context=context)
        token = f"PVEAPIToken={found['user']}!{found['token_id']}={found['token_secret']}"
        with contextlib.closing(link):
            link.request("GET", "/api2/json/version", headers={"Authorization": token})
            return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def outdated(paths: Paths) -> bool:
    """Whether files of the endpoint changed after the one that runs was started: it does not know of that."""
    began = endpoint_file(paths).stat().st_mtime  # written at each start
    return any(file.stat().st_mtime > began for file in Path(__file__).parent.rglob("*.py"))


def serve(paths: Paths, options: list[str], ready: int | None = None) -> NoReturn:
    """Become the endpoint: bind outside, enter the namespace, go on as ``python -m minipve run``.

    The socket stays in the network namespace where it was made: the host's loopback reaches the endpoint,
    while every ``ip``, ``tc`` and ``qemu`` that it starts is inside the lab's own.
    """
    lock = _claim(paths)
    if lock is None:
        raise UserError(f"another endpoint runs in {paths.state}", "minipve status")
    listener = _bind(paths)
    inside = namespace.ensure(paths, _guests(paths))
    for node in map(paths.of_node, paths.further):
        namespace.ensure_further(node, _guests(node), inside)
    handles = {"--fd": listener.fileno(), "--lock-fd": lock} | (
        {} if ready is None else {"--ready-fd": ready}
    )
    for handle in handles.values():
        os.set_inheritable(handle, True)
    words = [word for name, handle in handles.items() for word in (name, str(handle))]
    argv = inside.argv([*_MODULE, "run", *words, *options])
    os.execvp(argv[0], argv)


def _bind(paths: Paths) -> socket.socket:
    """A listening socket on the port that the instance had before, or else on a free one."""
    remembered = facts(paths).get("port", 0)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", remembered))
    except OSError:  # somebody took it while we were away
        listener.bind(("127.0.0.1", 0))
    listener.listen(1024)  # what comes at once, before the endpoint looks at it
    return listener


def detach(paths: Paths, options: list[str]) -> bool:
    """Start an endpoint in the background unless one runs; wait until it answers; True if it was started."""
    if is_running(paths):
        _await_answer(paths)
        namespace.ensure(paths, _inside(paths))
        return False
    state_folder.claim(paths)
    paths.log.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    with log_file(paths).open("a") as log, os.fdopen(reader) as said:
        child = subprocess.Popen(
            [*_MODULE, "serve", "--ready-fd", str(writer), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[writer],
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(writer)
        if said.readline() != "ready\n":
            child.wait(timeout=5)
            raise UserError(f"the endpoint did not start: {_last_words(paths)}")
    child.returncode = 0  # it outlives us on purpose: no ResourceWarning when the handle goes
    return True


def _inside(paths: Paths) -> list[int]:
    """The processes in the instance's network, any of which keeps it alive."""
    endpoint = process.recall(lock_file(paths))
    return [*([endpoint] if endpoint else []), *_guests(paths)]


def _guests(paths: Paths) -> list[int]:
    return [*machines(paths).values(), *containers(paths).values()]


def _await_answer(paths: Paths) -> None:
    deadline = time.monotonic() + START_S
    while not answers(paths):
        if time.monotonic() > deadline or not is_running(paths):
            raise UserError(f"the endpoint does not answer: {_last_words(paths)}")
        time.sleep(0.05)


def _last_words(paths: Paths) -> str:
    """What the endpoint said last: its error and what mends it, or else its last line and the log."""
    lines = log_file(paths).read_text().splitlines() if log_file(paths).exists() else []
    told = [number for number, line in enumerate(lines[-3:]) if line.startswith(PREFIX)]
    if told:
        return "\n".join(lines[-3:][told[-1] :]).removeprefix(PREFIX)
    return f"{lines[-1] if lines else 'it said nothing'}\n  less {log_file(paths)}"


def machines(paths: Paths) -> dict[int, int]:
    """VMID -> process id of the machines that run."""
    from minipve.qemu import running

    return running.find_all(paths)


def containers(paths: Paths) -> dict[int, int]:
    """VMID -> process id (of LXC's monitor) of the containers that run."""
    from minipve.lxc import running

    return running.find_all(paths)


def all_machines(paths: Paths) -> dict[int, int]:
    """VMID -> process id of the machines that run on any node."""
    return {k: pid for node in _everywhere(paths) for k, pid in machines(node).items()}


def all_containers(paths: Paths) -> dict[int, int]:
    """VMID -> process id of the containers that run on any node."""
    return {k: pid for node in _everywhere(paths) for k, pid in containers(node).items()}


def _everywhere(paths: Paths) -> list[Paths]:
    """The further nodes, and then the first: that holds what joins them."""
    return [*map(paths.of_node, paths.further), paths]


def stop(paths: Paths, purge: bool) -> bool:
    """End machines, endpoint and namespace; with ``purge`` remove the state too. True if anything ran."""
    if purge:
        state_folder.require_own(paths)
    began = is_running(paths)
    if began:
        _end_endpoint(paths)
    ran = [_end_node(node) for node in _everywhere(paths)]
    if purge:
        state_folder.remove(paths)
    return began or any(ran)


def _end_node(paths: Paths) -> bool:
    """End the guests of a node and its network; True if there was any."""
    ran = end_guests(paths)
    held = namespace.find(paths)
    if held:
        held.destroy()
    shutil.rmtree(paths.run, ignore_errors=True)
    return ran or held is not None


def end_guests(paths: Paths) -> bool:
    """End all guests of a node at once; True if any ran."""
    alive, held_by = machines(paths), containers(paths)
    _end_containers(paths, held_by)
    for pid in alive.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    for pid in alive.values():
        process.end(pid)
    return bool(alive) or bool(held_by)


def _end_containers(paths: Paths, found: dict[int, int]) -> None:
    """End containers; their NICs go with the instance's network."""
    from minipve.lxc import cgroups, commands, running

    with ThreadPoolExecutor(8) as many:
        list(many.map(lambda vmid: commands.end(vmid, paths), found.keys() | running.running(paths)))
    for _ in range(20):  # the last process of a group counts a moment longer than it lives
        cgroups.remove(paths)
        if not cgroups.exist(paths):
            return
        time.sleep(0.05)


def _end_endpoint(paths: Paths) -> None:
    pid = process.recall(lock_file(paths))
    if pid is not None:
        process.end(pid)
