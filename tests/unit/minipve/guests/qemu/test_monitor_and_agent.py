"""The clients of QEMU's monitor and of the guest agent, against scripted and hostile servers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.guests.qemu import channel, power

from tests.hostile_agent import RAW
from tests.waiting import PATIENCE_S

Answer = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path, tmp_path)
    paths.run.mkdir()
    return paths


@pytest.fixture
def serve(paths: Paths) -> Iterator[Callable[[str, Answer, bool], None]]:
    """Serve one connection at ``<run>/100.<kind>``. An empty list of answers is silence."""
    servers = []

    def start(kind: str, answer: Answer, greets: bool) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(paths.runtime(100, kind)))
        server.listen()
        thread = threading.Thread(target=_serve_one, args=(server, answer, greets))
        thread.start()
        servers.append((server, thread))

    yield start
    for server, thread in servers:
        thread.join(timeout=PATIENCE_S)
        server.close()


def _serve_one(server: socket.socket, answer: Answer, greets: bool) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rw") as file:
        if greets:
            print(json.dumps({"QMP": {}}), file=file, flush=True)
        for line in file:
            for message in answer(json.loads(line)):
                print(json.dumps(message), file=file, flush=True)


def monitor(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["execute"] == "qmp_capabilities":
        return [{"return": {}}]
    if message["execute"] == "query-status":
        return [{"event": "RESUME"}, {"return": {"status": "running"}}]
    return [{"error": {"class": "GenericError", "desc": "no such thing"}}]


def test_events_are_skipped(paths: Paths, serve: Any) -> None:
    serve("qmp", monitor, True)
    assert channel.Qmp(100, paths).execute("query-status") == {"status": "running"}


def test_socket_with_a_long_path_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts 107 bytes; QEMU binds its sockets with relative paths."""
    paths = Paths(tmp_path / ("state" * 30), tmp_path)
    paths.run.mkdir(parents=True)
    monkeypatch.chdir(paths.run)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(paths.runtime(100, "qmp").name)
        server.listen()
        thread = threading.Thread(target=_serve_one, args=(server, monitor, True))
        thread.start()
        assert channel.Qmp(100, paths).execute("query-status") == {"status": "running"}
        thread.join(timeout=PATIENCE_S)


def test_qmp_error_has_proxmox_ves_text(paths: Paths, serve: Any) -> None:
    serve("qmp", monitor, True)
    with pytest.raises(MachineError, match="VM 100 qmp command 'device_del' failed - no such thing"):
        channel.Qmp(100, paths).execute("device_del", {"id": "net7"})


def test_silent_monitor_is_a_timeout(paths: Paths, serve: Any) -> None:
    serve("qmp", lambda _message: [], True)
    with pytest.raises(MachineError, match="VM 100 qmp command 'cont' failed - got timeout"):
        channel.Qmp(100, paths).execute("cont", timeout_s=0.1)


def guest(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["execute"] == "guest-sync":
        return [{"return": 7}, {"return": message["arguments"]["id"]}]  # 7: the answer to an earlier client
    if message["execute"] == "guest-exec-status":
        return [{"error": {"desc": "Invalid parameter 'pid'"}}]
    return [] if message["execute"] == "guest-sleep" else [{"return": message["execute"]}]


def test_earlier_answers_of_the_agent_are_skipped(paths: Paths, serve: Any) -> None:
    serve("qga", guest, False)
    assert channel.execute(100, paths, "guest-info") == "guest-info"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("guest-exec-status", "Agent error: Invalid parameter 'pid'"),
        ("guest-sleep", "VM 100 qga command 'guest-sleep' failed - got timeout"),
    ],
)
def test_agent_error_has_proxmox_ves_text(command: str, text: str, paths: Paths, serve: Any) -> None:
    serve("qga", guest, False)
    with pytest.raises(MachineError, match=text):
        channel.execute(100, paths, command, timeout_s=0.1)


def test_missing_agent_is_an_error(paths: Paths) -> None:
    with pytest.raises(MachineError, match="QEMU guest agent is not running"):
        channel.execute(100, paths, "guest-ping")
    assert not channel.shut_down(100, paths)


@pytest.fixture
def hostile(paths: Paths) -> Iterator[Callable[[str, bytes], None]]:
    """Serve connections with correct handshakes, on which each other answer is these bytes."""
    servers = []

    def start(kind: str, data: bytes) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(paths.runtime(100, kind)))
        server.listen()
        thread = threading.Thread(target=_serve_hostile, args=(server, kind, data))
        thread.start()
        servers.append((server, thread))

    yield start
    for server, thread in servers:
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)
        server.close()


def _serve_hostile(server: socket.socket, kind: str, data: bytes) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # the test is over
            return
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
            if kind == "qmp":
                file.write(b'{"QMP": {}}\n')
                file.flush()
            for line in file:
                message = json.loads(line)
                handshakes = {"guest-sync": message.get("arguments", {}).get("id"), "qmp_capabilities": {}}
                correct = json.dumps({"return": handshakes.get(message["execute"])}).encode()
                file.write((correct if message["execute"] in handshakes else data) + b"\n")
                file.flush()


@pytest.mark.parametrize("data", RAW, ids=range(len(RAW)))
def test_malformed_answer_is_a_machine_error(paths: Paths, hostile: Any, data: bytes) -> None:
    for kind in ("qga", "qmp"):
        hostile(kind, data)
    with pytest.raises(MachineError, match=r"VM 100 qga command 'guest-info' failed - "):
        channel.execute(100, paths, "guest-info", timeout_s=0.3)
    with pytest.raises(MachineError, match=r"VM 100 qmp command 'query-status' failed - "):
        channel.Qmp(100, paths).execute("query-status", timeout_s=0.3)


def test_too_long_answer_is_an_error(paths: Paths, hostile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_ANSWER_BYTES", 2**16)
    hostile("qga", b"x" * 2**20)
    with pytest.raises(MachineError, match="the answer is larger than"):
        channel.execute(100, paths, "guest-info")


@pytest.mark.parametrize("data", [*RAW, b'{"return": -1}'], ids=range(len(RAW) + 1))
def test_power_button_replaces_a_useless_agent(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """The first command, ``guest-sync``, is already answered with these bytes."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(paths.runtime(100, "qga")))
    server.listen()
    pressed: list[str] = []
    monkeypatch.setattr(power, "has_agent", lambda *_: True)
    monkeypatch.setattr(power.Qmp, "execute", lambda _self, command: pressed.append(command))
    monkeypatch.setattr(channel, "PING_TIMEOUT_S", 0.5)

    def answer() -> None:
        connection, _ = server.accept()
        with contextlib.suppress(OSError), connection:
            connection.recv(1000)
            connection.sendall(data + b"\n")
            connection.recv(1000)

    thread = threading.Thread(target=answer)
    thread.start()
    with server:
        power.ask_to_power_off(100, paths)
        thread.join(timeout=10)
    assert pressed == ["system_powerdown"]
