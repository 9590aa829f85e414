"""The endpoint stops, crashes and restarts: machines keep running, and unfinished work is cleaned up."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract.conftest import minipve, serve
from tests.contract.endpoint import Endpoint, refused
from tests.waiting import PATIENCE_S


def _pid(endpoint: Endpoint) -> int:
    assert endpoint.state is not None
    return int((endpoint.state / "run/endpoint.lock").read_text().split()[0])


def _gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_serve_is_quick_when_an_endpoint_runs(own: Endpoint) -> None:
    assert own.state is not None
    before = (own.state / "endpoint.json").read_text()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = minipve("serve", "--detach", state=own.state)
    # 0.2 s on an idle machine; of the CPU, as the clock runs on while others have it
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - spent < 1
    assert done.stdout.startswith("running: https://127.0.0.1:")
    assert (own.state / "endpoint.json").read_text() == before
    assert (own.state / "endpoint.json").stat().st_mode & 0o777 == 0o600


def test_serve_reports_an_outdated_endpoint(own: Endpoint) -> None:
    assert own.state is not None
    os.utime(own.state / "run/endpoint.lock", (0, 0))
    done = minipve("serve", "--detach", state=own.state)
    assert f"kill {_pid(own)}; minipve --state {own.state} serve --detach" in done.stdout


def test_running_endpoint_names_the_images_of_a_changed_recipe(own: Endpoint, tmp_path: Path) -> None:
    assert own.state is not None
    facts = own.state / "endpoint.json"
    before = json.loads(facts.read_text())
    (requirements := tmp_path / "requirements.txt").write_text("six==1.17.0\n")
    done = minipve("--requirements", str(requirements), "serve", "--detach", state=own.state)
    assert done.stdout.startswith("running: ") and "code from before" not in done.stdout
    after = json.loads(facts.read_text())
    path = minipve("--requirements", str(requirements), "image", "--path", state=own.state).stdout.strip()
    assert after["image_file"] == path != before["image_file"]
    assert {name for name in before if after[name] != before[name]} == {"image_file", "template_file"}
    assert facts.stat().st_mode & 0o777 == 0o600


def test_endpoint_outlives_an_interrupted_start(own: Endpoint) -> None:
    """Ctrl-C ends who waits for the endpoint: nobody reads any more that it is ready."""
    assert own.state is not None
    assert minipve("stop", state=own.state).returncode == 0
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"MINIPVE_STATE": str(own.state)}
    command = [sys.executable, "-m", "minipve", "serve", "--ready-fd", str(writer)]
    child = subprocess.Popen(command, env=environment, pass_fds=[writer], start_new_session=True)
    os.close(writer)
    deadline = time.monotonic() + PATIENCE_S
    while minipve("status", state=own.state).returncode:
        assert child.poll() is None and time.monotonic() < deadline
    time.sleep(0.5)  # it announces itself, and then tells who waits
    assert child.poll() is None
    assert minipve("serve", "--detach", state=own.state).stdout.startswith("running: ")
    assert minipve("stop", state=own.state).returncode == 0
    child.wait(PATIENCE_S)


def test_restarted_endpoint_has_the_same_state(own: Endpoint) -> None:
    assert own.state is not None
    own.create(100, net0="virtio,bridge=vmbr0")
    own.done(own.vm(100).status.start.post())
    before = own.vm(100).status.current.get()
    os.kill(_pid(own), signal.SIGTERM)
    _gone(_pid(own))
    assert Path(f"/proc/{before['pid']}").exists()
    again = serve(own.state)
    assert again == own  # the same port, token, certificate
    after = again.vm(100).status.current.get()
    assert (after["pid"], after["status"], after["qmpstatus"]) == (before["pid"], "running", "running")
    again.done(again.vm(100).status.stop.post())


def test_clone_of_a_killed_endpoint_is_removed(own: Endpoint) -> None:
    assert own.state is not None
    source = own.state / "storage/import/big.raw"
    with source.open("wb") as stream:
        for _ in range(64):
            stream.write(os.urandom(2**20) * 8)
    own.create(100, scsi0="local:0,import-from=local:import/big.raw")
    upid = own.vm(100).clone.post(newid=101, pool=own.pool)
    target = own.state / "storage/images/101/vm-101-disk-0.qcow2"
    deadline = time.monotonic() + PATIENCE_S
    while not target.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(_pid(own), signal.SIGKILL)
    _gone(_pid(own))
    again = serve(own.state)
    assert again.wait(upid)["exitstatus"] == "unexpected status"
    assert not target.exists()
    again.done(again.vm(100).clone.post(newid=101, pool=own.pool))


@pytest.mark.parametrize("lock", ["create", "clone", "destroyed", "rollback"])
@pytest.mark.parametrize("folder", ["qemu-server", "lxc"])
def test_restart_keeps_guests_that_root_locked(own: Endpoint, folder: str, lock: str) -> None:
    """Only the journal marks unfinished work of the endpoint, not the option ``lock``."""
    assert own.state is not None
    file = own.state / "etc/pve" / folder / "101.conf"
    file.write_text(f"lock: {lock}\nmemory: 64\n")
    os.kill(_pid(own), signal.SIGKILL)
    _gone(_pid(own))
    serve(own.state)
    assert file.read_text() == f"lock: {lock}\nmemory: 64\n"


def test_root_can_remove_an_unfinished_clone(own: Endpoint) -> None:
    assert own.state is not None
    (own.state / "etc/pve/qemu-server/101.conf").write_text("lock: clone\n")
    left = own.state / "storage/images/101/vm-101-disk-0.qcow2"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    root = own.root()
    own.done(root.nodes("pve").qemu(101).delete(skiplock=1), root)
    assert not left.exists()
    assert refused(root.nodes("pve").qemu(101).config.get).status_code == 500


def test_two_instances_do_not_collide(own: Endpoint, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    other_state = tmp_path_factory.mktemp("other")
    other = serve(other_state)
    try:
        assert other.port != own.port
        assert other.token_secret != own.token_secret
        for endpoint in (own, other):
            endpoint.create(100, net0="virtio,bridge=vmbr0")
            endpoint.done(endpoint.vm(100).status.start.post())
        pids = {endpoint.vm(100).status.current.get()["pid"] for endpoint in (own, other)}
        assert len(pids) == 2
        assert refused_by_other(own, other) == 401
    finally:
        assert minipve("stop", "--purge", state=other_state).returncode == 0
    assert own.vm(100).status.current.get()["status"] == "running"


def refused_by_other(own: Endpoint, other: Endpoint) -> int:
    """Return the other endpoint's status for our token."""
    return other.request("GET", "/version", own.token).status_code


def test_stop_leaves_nothing(own: Endpoint) -> None:
    assert own.state is not None
    own.create(100, net0="virtio,bridge=vmbr0", ide2="local:cloudinit", agent=1)
    own.done(own.vm(100).status.start.post())
    machine = own.vm(100).status.current.get()["pid"]
    holder = int((own.state / "run/namespace.pid").read_text().split()[0])
    endpoint = _pid(own)
    assert minipve("stop", "--purge", state=own.state).stdout == "stopped\n"
    for pid in (machine, holder, endpoint):
        _gone(pid)
    assert not own.state.exists()
    assert minipve("stop", "--purge", state=own.state).stdout == "nothing to stop\n"
    assert minipve("status", state=own.state).returncode == 1


def test_ctrl_c_ends_the_endpoint_and_not_its_machines(own: Endpoint) -> None:
    assert own.state is not None
    own.create(100)
    own.done(own.vm(100).status.start.post())
    machine = own.vm(100).status.current.get()["pid"]
    os.kill(_pid(own), signal.SIGTERM)
    _gone(_pid(own))
    words = [sys.executable, "-m", "minipve", "serve"]
    environment = os.environ | {"MINIPVE_STATE": str(own.state)}
    child = subprocess.Popen(
        words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stderr is not None
    with child.stderr as said:
        assert "serving https://127.0.0.1:" in said.readline()
        again = Endpoint.of_state(own.state, own.pool)
        assert json.dumps(again.vm(100).status.current.get())
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(timeout=PATIENCE_S) == 0
    assert Path(f"/proc/{machine}").exists()
    serve(own.state)


def test_second_endpoint_in_a_state_folder_is_refused(own: Endpoint) -> None:
    assert own.state is not None
    done = minipve("serve", state=own.state)
    assert done.returncode == 1
    assert "another endpoint runs" in done.stderr


def _network(endpoint: Endpoint) -> str:
    """Return the network namespace that ``enter-shell`` enters."""
    assert endpoint.state is not None
    words = [str(endpoint.state / "enter-shell"), "-c", "readlink /proc/self/ns/net"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _kill_holder(endpoint: Endpoint) -> None:
    assert endpoint.state is not None
    holder = int((endpoint.state / "run/namespace.pid").read_text().split()[0])
    os.kill(holder, signal.SIGKILL)
    _gone(holder)


def test_serve_restarts_a_killed_network_holder(own: Endpoint) -> None:
    assert own.state is not None
    before = _network(own)
    _kill_holder(own)
    said = minipve("status", state=own.state)
    assert (said.returncode, "its holder process has ended; run: minipve serve" in said.stdout) == (1, True)
    serve(own.state)
    assert _network(own) == before
    assert minipve("status", state=own.state).returncode == 0


def test_network_survives_the_death_of_holder_and_endpoint(own: Endpoint) -> None:
    assert own.state is not None
    own.create(100, net0="virtio,bridge=vmbr0")
    own.done(own.vm(100).status.start.post())
    before = _network(own)
    endpoint = _pid(own)
    os.kill(endpoint, signal.SIGKILL)
    _gone(endpoint)
    _kill_holder(own)
    again = serve(own.state)
    assert _network(again) == before
    assert again.vm(100).status.current.get()["nics"].keys() == {"tap100i0"}
    again.done(again.vm(100).status.stop.post())


def test_purge_reports_a_read_only_state_folder(own: Endpoint) -> None:
    """The test mounts the state folder read-only, in a separate mount namespace."""
    assert own.state is not None
    words = f"mount --bind {own.state} {own.state} && mount -o remount,ro,bind {own.state} && exec "
    purge = f"{sys.executable} -m minipve stop --purge"
    private = ["unshare", "--mount", "sh", "-c", words + purge]
    environment = os.environ | {"MINIPVE_STATE": str(own.state)}
    done = subprocess.run(private, env=environment, capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"minipve: {own.state}")
    assert done.stderr.endswith(": Read-only file system\n")
    assert done.stderr.count("\n") == 1
    assert own.state.exists()
