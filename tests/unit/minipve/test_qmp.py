"""The two small clients against a scripted socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.minipve.machine import qmp
from lab.minipve.paths import Paths
from lab.minipve.process import MachineError
from tests.waiting import PATIENCE_S

Answer = Callable[[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path, tmp_path)
    found.run.mkdir()
    return found


@pytest.fixture
def serve(paths: Paths) -> Iterator[Callable[[str, Answer, bool], None]]:
    """Serve one conversation at ``<run>/100.<kind>``; an empty list of answers is silence."""
    servers = []

    def begin(kind: str, answer: Answer, greets: bool) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(paths.runtime(100, kind)))
        server.listen()
        thread = threading.Thread(target=_converse, args=(server, answer, greets))
        thread.start()
        servers.append((server, thread))

    yield begin
    for server, thread in servers:
        thread.join(timeout=PATIENCE_S)
        server.close()


def _converse(server: socket.socket, answer: Answer, greets: bool) -> None:
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


def test_events_pass_by(paths: Paths, serve: Any) -> None:
    serve("qmp", monitor, True)
    assert qmp.Qmp(100, paths).execute("query-status") == {"status": "running"}


def test_refusals_have_proxmox_ves_text(paths: Paths, serve: Any) -> None:
    serve("qmp", monitor, True)
    with pytest.raises(MachineError, match="VM 100 qmp command 'device_del' failed - no such thing"):
        qmp.Qmp(100, paths).execute("device_del", {"id": "net7"})


def test_silence_is_a_time_out(paths: Paths, serve: Any) -> None:
    serve("qmp", lambda _message: [], True)
    with pytest.raises(MachineError, match="VM 100 qmp command 'cont' failed - got timeout"):
        qmp.Qmp(100, paths).execute("cont", timeout_s=0.1)


def guest(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["execute"] == "guest-sync":
        return [{"return": 7}, {"return": message["arguments"]["id"]}]  # 7: left over from an earlier client
    if message["execute"] == "guest-exec-status":
        return [{"error": {"desc": "Invalid parameter 'pid'"}}]
    return [] if message["execute"] == "guest-sleep" else [{"return": message["execute"]}]


def test_the_agent_is_synchronised_first(paths: Paths, serve: Any) -> None:
    serve("qga", guest, False)
    assert qmp.agent(100, paths, "guest-info") == "guest-info"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("guest-exec-status", "Agent error: Invalid parameter 'pid'"),
        ("guest-sleep", "VM 100 qga command 'guest-sleep' failed - got timeout"),
    ],
)
def test_agent_failures(command: str, text: str, paths: Paths, serve: Any) -> None:
    serve("qga", guest, False)
    with pytest.raises(MachineError, match=text):
        qmp.agent(100, paths, command, timeout_s=0.1)


def test_no_agent_at_all(paths: Paths) -> None:
    with pytest.raises(MachineError, match="QEMU guest agent is not running"):
        qmp.agent(100, paths, "guest-ping")
    assert not qmp.agent_answers(100, paths)
