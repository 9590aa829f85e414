"""Damaged state files: the log names each in one line, and everything else works."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.conftest import minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.waiting import PATIENCE_S

GARBAGE = b"\x00\xff\xfe not what it was"


def end(endpoint: Endpoint, number: signal.Signals = signal.SIGKILL) -> None:
    assert endpoint.state is not None
    pid = int((endpoint.state / "run/endpoint.lock").read_text().split()[0])
    os.kill(pid, number)
    gone(pid)


def gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def said(endpoint: Endpoint, word: str) -> list[str]:
    """Return the lines of the endpoint's log that contain a word."""
    assert endpoint.state is not None
    lines = (endpoint.state / "log/endpoint.log").read_text().splitlines()
    return [line for line in lines if word in line]


@pytest.fixture
def running(own: Endpoint) -> Iterator[Endpoint]:
    """Yield an endpoint with one running and two stopped machines."""
    for vmid in (100, 101, 102):
        own.create(vmid, net0="virtio,bridge=vmbr0")
    own.done(own.vm(100).status.start.post())
    yield own


def test_damaged_files_are_logged_and_the_rest_works(running: Endpoint) -> None:
    state = running.state
    assert state is not None
    pid = running.vm(100).status.current.get()["pid"]
    end(running)
    damaged = ["etc/pve/qemu-server/101.conf", "etc/pve/qemu-server/1abc.conf", "etc/network/interfaces"]
    damaged += ["etc/pve/access.json", "etc/pve/authkey"]
    for name in (*damaged, "log/tasks/UPID:garbage", "run/100.pid", "endpoint.json"):
        (state / name).write_bytes(GARBAGE)
    again = serve(state)
    assert [row["vmid"] for row in again.api().nodes("pve").qemu.get()] == [100, 102]
    for name in damaged:
        assert len(said(again, str(state / name))) == 1, name
    assert not said(again, "Traceback")
    assert again.vm(100).status.current.get()["pid"] == pid
    assert again.api().nodes("pve").tasks.get()
    again.done(again.vm(102).status.start.post())
    again.done(again.vm(102).status.stop.post())
    again.done(again.vm(100).status.stop.post())
    gone(pid)
    error = refused(again.vm(101).config.get)
    assert error.content.startswith(f"{state}/etc/pve/qemu-server/101.conf is damaged (line 1)")
    error = refused(again.api().nodes("pve").network.get)
    assert error.content.startswith(f"{state}/etc/network/interfaces is damaged")
    again.done(again.vm(101).delete())
    assert not (state / "etc/pve/qemu-server/101.conf").exists()
    assert [row["vmid"] for row in again.api().nodes("pve").qemu.get()] == [100, 102]


@pytest.mark.parametrize("text", [b"", GARBAGE, b"1\n", None])
def test_purge_ends_machines_without_a_pid_file(running: Endpoint, text: bytes | None) -> None:
    state = running.state
    assert state is not None
    pid = running.vm(100).status.current.get()["pid"]
    file = state / "run/100.pid"
    file.unlink() if text is None else file.write_bytes(text)
    done = minipve("stop", "--purge", state=state)
    assert (done.returncode, done.stdout, state.exists()) == (0, "stopped\n", False)
    gone(pid)


def test_endpoint_does_not_start_without_users(own: Endpoint) -> None:
    assert own.state is not None
    end(own)
    for name in ("access.json", "access.json.copy"):
        (own.state / "etc/pve" / name).write_bytes(GARBAGE)
    done = minipve("serve", "--detach", state=own.state)
    assert done.returncode == 1
    assert "access.json is damaged" in done.stderr and "Traceback" not in done.stderr


def test_unfinished_files_are_removed_at_the_start(own: Endpoint) -> None:
    assert own.state is not None
    end(own)
    left = [own.state / "seeds/.tmp-seed-x/user-data", own.state / "storage/.tmp-pveupload-00"]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("password: $5$...")
    serve(own.state)
    assert [file for file in left if file.exists()] == []
    assert list(own.state.rglob(".tmp-*")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a file that is another user's")
@pytest.mark.parametrize("what", ["etc/pve", "log", "."])
def test_root_follows_no_links_of_another_user(own: Endpoint, tmp_path_factory, what: str) -> None:  # type: ignore[no-untyped-def]
    """In another user's state folder, links could redirect the files that root writes."""
    assert own.state is not None
    end(own)
    target = tmp_path_factory.mktemp("target")
    if what == ".":
        os.chown(own.state, 65534, 65534)
    else:
        subprocess.run(["rm", "-r", own.state / what], check=True)
        (own.state / what).symlink_to(target)
        os.chown(own.state / what, 65534, 65534, follow_symlinks=False)
    done = minipve("serve", "--detach", state=own.state)
    assert done.returncode == 1
    assert "belongs to another user (uid 65534)" in done.stderr
    assert list(target.iterdir()) == []
    os.chown(own.state if what == "." else own.state / what, 0, 0, follow_symlinks=False)
