"""Start and stop an instance: everything that happens outside the endpoint's process.

This module avoids slow imports, because scripts and playbooks run ``minipve serve`` again and again.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from minipve.base import process
from minipve.base.atomic import write_atomic
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.endpoint import setup
from minipve.endpoint.setup import Address
from minipve.endpoint.terminal import PREFIX
from minipve.guests import power
from minipve.image import golden
from minipve.network import namespace

START_S = 60.0
_MODULE = [sys.executable, "-m", "minipve"]


def facts(paths: Paths) -> dict[str, Any]:
    """Return the contents of ``endpoint.json``; empty when the instance was never started."""
    try:
        contents = json.loads(paths.endpoint_file.read_bytes())
        return dict(contents) if contents["ca_file"] else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # damaged: the next start replaces it
        return {}


def _claim(paths: Paths) -> int | None:
    """Lock the instance for this process. Returns the lock's file descriptor, or None if it is locked."""
    setup.claim(paths)
    paths.run.mkdir(parents=True, exist_ok=True)
    handle = os.open(paths.endpoint_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    process.remember(os.getpid(), paths.endpoint_lock)  # the lock survives exec
    return handle


def pid(paths: Paths) -> int | None:
    """Return the process id of the endpoint; None if none runs."""
    return process.recall(paths.endpoint_lock)


def is_running(paths: Paths) -> bool:
    """Return whether an endpoint (answering or just starting) holds the instance."""
    return pid(paths) is not None


def answers(paths: Paths, timeout_s: float = 5.0) -> bool:
    """Return whether the endpoint answers ``GET /version`` with root's token."""
    endpoint = facts(paths)
    if not endpoint:
        return False
    try:
        context = ssl.create_default_context(cafile=endpoint["ca_file"])
        address = endpoint["host"], endpoint["port"]
        link = http.client.HTTPSConnection(*address, timeout=timeout_s, context=context)
        token = f"PVEAPIToken={endpoint['user']}!{endpoint['token_id']}={endpoint['token_secret']}"
        with contextlib.closing(link):
            link.request("GET", "/api2/json/version", headers={"Authorization": token})
            return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def outdated(paths: Paths) -> bool:
    """Return whether minipve's source changed after the running endpoint was started."""
    start = paths.endpoint_lock.stat().st_mtime  # it is written at each start
    return any(file.stat().st_mtime > start for file in Path(__file__).parents[1].rglob("*.py"))


def serve(paths: Paths, options: list[str], address: Address, ready: int | None = None) -> NoReturn:
    """Become the endpoint: bind the socket, enter the network namespace, and execute ``minipve run``.

    A socket stays in the namespace in which it was created. So the host's loopback reaches the endpoint,
    while every ``ip``, ``tc`` and ``qemu`` that the endpoint starts runs in the instance's own network.
    """
    lock = _claim(paths)
    if lock is None:
        raise UserError(f"another endpoint runs in {paths.state}", "minipve status")
    listener = address.bind(facts(paths).get("port", 0))
    inside = namespace.ensure(paths, _guests(paths))
    for node in map(paths.of_node, paths.additional_nodes):
        namespace.ensure_further(node, _guests(node), inside)
    handles = {"--fd": listener.fileno(), "--lock-fd": lock} | (
        {} if ready is None else {"--ready-fd": ready}
    )
    for handle in handles.values():
        os.set_inheritable(handle, True)
    words = [word for name, handle in handles.items() for word in (name, str(handle))]
    argv = inside.argv([*_MODULE, "run", *words, *options])
    os.execvp(argv[0], argv)


def detach(paths: Paths, options: list[str], address: Address) -> bool:
    """Start an endpoint in the background unless one runs, and wait until it answers. True if started."""
    if is_running(paths):
        _await_answer(paths)
        _check_port(paths, address)
        namespace.ensure(paths, _inside(paths))
        _name_current_images(paths)
        return False
    setup.claim(paths)
    paths.log.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    with paths.endpoint_log.open("a") as log, os.fdopen(reader) as ready:
        child = subprocess.Popen(
            [*_MODULE, "serve", "--ready-fd", str(writer), *options, *address.options()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[writer],
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(writer)
        if ready.readline() != "ready\n":
            child.wait(timeout=5)
            raise UserError(f"the endpoint did not start: {_last_error(paths)}")
    child.returncode = 0  # it outlives us on purpose, so avoid the ResourceWarning
    return True


def _name_current_images(paths: Paths) -> None:
    """Let ``endpoint.json`` of a running endpoint name the current images: updates change their recipe."""
    stored = facts(paths)
    current = stored | golden.files(paths)
    if current != stored:
        write_atomic(paths.endpoint_file, json.dumps(current, indent=1) + "\n", 0o600)


def _check_port(paths: Paths, address: Address) -> None:
    """Raise UserError when the running endpoint has another port than the requested one."""
    port = facts(paths)["port"]
    if address.port not in (None, port):
        raise UserError(f"the endpoint in {paths.state} already listens on port {port}", "minipve stop")


def _inside(paths: Paths) -> list[int]:
    """Return the processes in the instance's network. Each of them keeps it alive."""
    endpoint = pid(paths)
    return [*([endpoint] if endpoint else []), *_guests(paths)]


def _guests(paths: Paths) -> list[int]:
    return [*power.machines(paths).values(), *power.containers(paths).values()]


def _await_answer(paths: Paths) -> None:
    deadline = time.monotonic() + START_S
    while not answers(paths):
        if time.monotonic() > deadline or not is_running(paths):
            raise UserError(f"the endpoint does not answer: {_last_error(paths)}")
        time.sleep(0.05)


def _last_error(paths: Paths) -> str:
    """Return the endpoint's error message from its log, or else the last line and the log's path."""
    lines = paths.endpoint_log.read_text().splitlines() if paths.endpoint_log.exists() else []
    errors = [number for number, line in enumerate(lines[-3:]) if line.startswith(PREFIX)]
    if errors:
        return "\n".join(lines[-3:][errors[-1] :]).removeprefix(PREFIX)
    return f"{lines[-1] if lines else 'its log is empty'}\n  less {paths.endpoint_log}"


def all_machines(paths: Paths) -> dict[int, int]:
    """Return VMID -> process id of the running machines on all nodes."""
    return {k: pid for node in _all_nodes(paths) for k, pid in power.machines(node).items()}


def all_containers(paths: Paths) -> dict[int, int]:
    """Return VMID -> process id of the running containers on all nodes."""
    return {k: pid for node in _all_nodes(paths) for k, pid in power.containers(node).items()}


def _all_nodes(paths: Paths) -> list[Paths]:
    """Return all nodes, the first one last, because its network connects the others."""
    return [*map(paths.of_node, paths.additional_nodes), paths]


def stop(paths: Paths, purge: bool) -> bool:
    """End guests, endpoint and network; with ``purge`` remove the state, too. True if anything ran."""
    if purge:
        setup.require_own(paths)
    endpoint_ran = is_running(paths)
    if endpoint_ran:
        _end_endpoint(paths)
    nodes_ran = [_end_node(node) for node in _all_nodes(paths)]
    if purge:
        setup.remove(paths)
    return endpoint_ran or any(nodes_ran)


def _end_node(paths: Paths) -> bool:
    """End the guests of a node and its network. True if there was any."""
    ran = power.end_guests(paths)
    network = namespace.find(paths)
    if network:
        network.destroy()
    shutil.rmtree(paths.run, ignore_errors=True)
    return ran or network is not None


def _end_endpoint(paths: Paths) -> None:
    endpoint = pid(paths)
    if endpoint is not None:
        process.end(endpoint)
