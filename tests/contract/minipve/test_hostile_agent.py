"""A hostile guest agent: requests get PVE's errors, and a shutdown continues."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import Allow
from tests.contract.endpoint import Endpoint
from tests.contract.fuzzing import PYTHON
from tests.hostile_agent import ANSWERS, HostileAgent

REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "info", {}),
    ("POST", "ping", {}),
    ("GET", "network-get-interfaces", {}),
    ("POST", "exec", {"command": ["true"]}),
    ("GET", "exec-status", {"pid": 1}),
    ("GET", "file-read", {"file": "/x"}),
    ("POST", "file-write", {"file": "/x", "content": "y"}),
]


@pytest.fixture
def victim(ours: Endpoint, vmid: int, allow: Allow) -> Iterator[int]:
    """A machine without a disk, whose agent port a hostile agent takes over."""
    allow(
        "VM.GuestAgent.Unrestricted",
        "VM.GuestAgent.Audit",
        "VM.GuestAgent.FileRead",
        "VM.GuestAgent.FileWrite",
    )
    ours.create(vmid, agent=1)
    ours.done(ours.vm(vmid).status.start.post())
    yield vmid


def assert_no_traceback(endpoint: Endpoint) -> None:
    assert endpoint.state is not None
    log = (endpoint.state / "log/endpoint.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


def test_hostile_answers_to_every_command(ours: Endpoint, victim: int) -> None:
    assert ours.state is not None
    answers = itertools.cycle(ANSWERS)
    agent = HostileAgent(ours.state / f"run/{victim}.qga", lambda _command: next(answers))
    try:
        for verb, name, params in REQUESTS:
            for number in range(
                len(ANSWERS) + 1
            ):  # one more, so that each command starts with another answer
                place = {"params": params} if verb == "GET" else {"json": params}
                answer = ours.request(verb, f"/nodes/{ours.node}/qemu/{victim}/agent/{name}", **place)
                assert answer.status_code in (200, 500, 596), (name, number, answer.text[:200])
                assert not PYTHON.search(answer.text.replace("Traceback?", "")), answer.text[:500]
                assert len(answer.reason) < 1500
    finally:
        agent.close()
    assert_no_traceback(ours)


def test_endless_file_is_an_error(ours: Endpoint, victim: int) -> None:
    assert ours.state is not None
    answers = {
        "guest-file-open": b'{"return": 1}',
        "guest-file-read": b'{"return": {"buf-b64": "", "eof": false}}',
    }
    agent = HostileAgent(
        ours.state / f"run/{victim}.qga", lambda command: answers.get(command, b'{"return": {}}')
    )
    try:
        answer = ours.request(
            "GET", f"/nodes/{ours.node}/qemu/{victim}/agent/file-read", params={"file": "/x"}
        )
    finally:
        agent.close()
    assert (answer.status_code, answer.reason) == (
        500,
        f"VM {victim} qga command 'guest-file-read' failed - the answer is empty",
    )


@pytest.mark.parametrize("polite", [True, False])
def test_shutdown_survives_hostile_answers(ours: Endpoint, victim: int, polite: bool) -> None:
    assert ours.state is not None
    answers = itertools.cycle(ANSWERS)
    agent = HostileAgent(ours.state / f"run/{victim}.qga", lambda _command: next(answers), polite)
    try:
        for _ in ANSWERS[:: 1 if polite else 8]:
            upid = ours.vm(victim).status.shutdown.post(timeout=1)
            assert ours.failed(upid) == "VM quit/powerdown failed - got timeout"
            if polite:
                break  # only the answer to guest-sync is read
        ours.done(ours.vm(victim).status.shutdown.post(timeout=1, forceStop=1))
    finally:
        agent.close()
    assert ours.vm(victim).status.current.get()["status"] == "stopped"
    assert_no_traceback(ours)
