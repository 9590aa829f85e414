"""The lab's lock between real processes, and playbooks that are killed or hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from dasklab.errors import LabError
from dasklab.paths import PLAYBOOKS
from dasklab.paths import SHARE as ROOT
from dasklab.running.lock.lock import LabLock, holders, lock_files, lock_lab
from dasklab.running.playbooks import playbook
from dasklab.running.playbooks.watchdog import MITOGEN, Watchdog

DRIVER = """
import sys
from pathlib import Path
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.running.playbooks import playbook
from dasklab.running.lock.lock import lock_lab, lock_files
lab = Inventory(Path(sys.argv[1]))
with lock_lab(lock_files(lab.hosts(), lab.optional)):
    playbook.run(sys.argv[2], lab.path, quiet=True)
"""
RENAMED = (b"worker:", MITOGEN.encode())


class SleepingLab:
    """An inventory with three local hosts, and a playbook that sleeps on each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = self.write_inventory("hosts.yml")
        self.book = folder / "sleep.yml"
        self.write_book("lab")
        self.started: list[subprocess.Popen[str]] = []

    def write_inventory(self, name: str) -> Path:
        groups = {"dask_client": "a", "dask_scheduler": "b", "dask_workers": "c"}
        variables = {"ansible_connection": "local", "lab_state_dir": str(self.folder / "state")}
        children = {group: {"hosts": {host: {}}} for group, host in groups.items()}
        document = {"all": {"children": {"lab": {"children": children, "vars": variables}}}}
        path = self.folder / name
        path.write_text(yaml.safe_dump(document))
        return path

    def write_book(self, hosts: str, **variables: str) -> None:
        sleep = {"name": "Sleep", "ansible.builtin.raw": f"touch {self.folder}/begun-$$; sleep 60"}
        play = {"name": "P", "hosts": hosts, "gather_facts": False, "tasks": [sleep], "vars": variables}
        self.book.write_text(yaml.safe_dump([play]))

    @property
    def locks(self) -> list[Path]:
        """The lock files of the inventory."""
        return lock_files(list("abc"), lambda _, name: {"lab_state_dir": self.folder / "state"}.get(name))

    def start(self, *argv: str, forks: int = 5) -> subprocess.Popen[str]:
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORKS": str(forks)}
        child = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=environment,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.started.append(child)
        return child

    def start_driver(self) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", DRIVER, str(self.inventory), str(self.book))

    def start_playbook(
        self, book: Path, *options: str, inventory: Path | None = None
    ) -> subprocess.Popen[str]:
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        return self.start(program, "-i", str(inventory or self.inventory), str(book), *options)

    def await_tasks(self, count: int = 1) -> None:
        until(lambda: len(list(self.folder.glob("begun-*"))) >= count)

    def processes(self) -> list[int]:
        """Return the processes whose command line contains this folder, and those that Mitogen renamed."""
        folder, pids = str(self.folder).encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                is_renamed = line.startswith(RENAMED) and folder in (entry / "environ").read_bytes()
                if (is_renamed or folder in line) and int(entry.name) != os.getpid():
                    pids.append(int(entry.name))
        return pids

    def workers(self, ansible: int) -> list[int]:
        """Return the processes in which a playbook runs its tasks: its children, except Mitogen's own."""
        children = [pid for pid in self.processes() if parent(pid) == ansible]
        return [pid for pid in children if not Path(f"/proc/{pid}/cmdline").read_text().startswith(MITOGEN)]


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SleepingLab]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPT_NOENV", "1")  # processes that Mitogen renames keep their environment
    lab = SleepingLab(tmp_path)
    yield lab
    for pid in lab.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for child in lab.started:
        child.wait()
        assert child.stdout
        child.stdout.close()


def test_killed_driver_leaves_the_lab_locked_until_its_playbook_ends(lab: SleepingLab) -> None:
    driver = lab.start_driver()
    lab.await_tasks()
    [file] = [path for path in lab.locks if holders(path)][:1]
    driver.kill()
    driver.wait()
    orphans = holders(file)
    assert orphans and driver.pid not in orphans, "the playbook has not inherited the lock"
    refused = subprocess.run(["flock", "--nonblock", str(file), "true"], check=False)
    assert refused.returncode == 1, "the lab is free while a playbook changes it"
    with lock_lab(lab.locks) as orphans_ended:
        assert orphans_ended
        assert lab.processes() == [], "two commands change the lab"
    assert not file.exists()


def test_second_ctrl_c_leaves_no_playbook_behind(lab: SleepingLab) -> None:
    driver = lab.start_driver()
    lab.await_tasks()
    driver.send_signal(signal.SIGINT)
    time.sleep(0.1)  # the first one is being handled
    driver.send_signal(signal.SIGINT)
    driver.wait(60)
    until(lambda: lab.processes() == [])


def test_command_is_refused_while_a_playbook_changes_the_lab(lab: SleepingLab) -> None:
    by_hand = lab.start_playbook(lab.book)
    lab.await_tasks()
    with pytest.raises(LabError, match=rf"using this lab: ansible-playbook .*process {by_hand.pid}"):
        LabLock(lab.locks).acquire()
    by_hand.terminate()
    by_hand.wait()
    lock = LabLock(lab.locks)
    until(lambda: not lab.processes())
    assert not lock.acquire()
    lock.release()


def test_playbook_is_refused_while_a_command_changes_the_lab(lab: SleepingLab) -> None:
    """Also with a second inventory file of the same lab. No task of it runs."""
    other = lab.write_inventory("other.yml")
    with lock_lab(lab.locks):
        for inventory in (lab.inventory, other):
            refused = lab.start_playbook(lab.book, inventory=inventory)
            printed, _ = refused.communicate(timeout=60)
            assert refused.returncode == 1
            assert "another command is using this lab" in printed
            assert f"(process {os.getpid()})" in printed
            assert "Traceback" not in printed
    assert not list(lab.folder.glob("begun-*"))


def test_playbook_that_changes_nothing_needs_no_lock(lab: SleepingLab) -> None:
    check = lab.start_playbook(lab.book, "--check")
    with lock_lab(lab.locks):
        lab.write_book("lab", lab_lock="unneeded")
        reader = lab.start_playbook(lab.book)
        lab.await_tasks()
        reader.terminate()
        printed, _ = check.communicate(timeout=60)
        assert check.returncode == 0, printed


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_that_changes_something_takes_the_lock(path: Path) -> None:
    plays = [play for play in yaml.safe_load(path.read_text()) if "hosts" in play]
    needs = {play.get("vars", {}).get("lab_lock", "locked") for play in plays}
    assert needs <= ({"unneeded"} if path.stem in {"status", "wait", "require_lab"} else {"locked"})


def configure_ansible(lab: SleepingLab, forks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FORKS", str(forks))
    monkeypatch.setattr(playbook, "Watchdog", partial(Watchdog, idle_s=10.0))


def kill_after_start(lab: SleepingLab, count: int, *, worker: bool) -> threading.Thread:
    """Kill this process's Ansible, or its first worker, once ``count`` tasks have started."""

    def kill() -> None:
        lab.await_tasks(count)
        [main] = [pid for pid in lab.processes() if parent(pid) == os.getpid()]
        os.kill(min(lab.workers(main)) if worker else main, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def test_dead_worker_does_not_hang_the_command(lab: SleepingLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer forks than hosts the next worker takes its place, and Ansible would wait for ever."""
    configure_ansible(lab, 2, monkeypatch)
    lab.book.write_text(lab.book.read_text().replace("sleep 60", "sleep 5"))
    killer = kill_after_start(lab, 1, worker=True)
    with (
        lock_lab(lab.locks),
        pytest.raises(playbook.PlaybookEndedError, match="an Ansible worker died"),
    ):
        playbook.run(str(lab.book), lab.inventory, quiet=True)
    killer.join()
    assert lab.processes() == []


def test_dead_ansible_is_reported_and_its_workers_end(
    lab: SleepingLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_ansible(lab, 5, monkeypatch)
    killer = kill_after_start(lab, 1, worker=False)
    with lock_lab(lab.locks):
        with pytest.raises(LabError, match="ansible-playbook was killed by SIGKILL"):
            playbook.run(str(lab.book), lab.inventory, quiet=True)
        until(lambda: lab.processes() == [], 5)
    killer.join()


def test_playbook_is_stopped_at_its_deadline(lab: SleepingLab) -> None:
    start_s = time.monotonic()
    with (
        lock_lab(lab.locks),
        pytest.raises(LabError, match=r"sleep\.yml was stopped: it did not finish within 3 s"),
    ):
        playbook.run(str(lab.book), lab.inventory, quiet=True, limit_s=3)
    assert time.monotonic() - start_s < 30
    assert lab.processes() == []


def test_locks_are_the_same_in_every_inventory_of_a_lab(tmp_path: Path) -> None:
    state = tmp_path / "state"
    local = {"lab_state_dir": str(state), "endpoint_start": ["x"], "lab_name": "one"}
    assert lock_files(["h"], lambda _, name: local.get(name)) == [tmp_path / "state.lock"]
    remote = {"lab_name": "one", "proxmox": {"host": "pve.example", "port": 8006}}
    same = {"lab_name": "one", "proxmox": {"host": "pve.example"}}
    other = {**remote, "lab_name": "two"}
    [one], [again], [two] = (lock_files(["h"], lambda _, n, v=v: v.get(n)) for v in (remote, same, other))
    assert one == again != two
    existing = {("a", "ansible_host"): "192.0.2.1"}
    swapped = {("b", "ansible_host"): "192.0.2.1", ("a", "ansible_host"): "b"}
    files = lock_files(["b", "a"], lambda *key: existing.get(key))
    assert len(files) == 2
    assert files == lock_files(["b", "a"], lambda *key: swapped.get(key))


def test_lock_of_a_state_folder_is_the_same_in_another_home(
    lab: SleepingLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"lab_state_dir": str(lab.folder / "state"), "endpoint_start": ["x"]}
    with lock_lab(lock_files(["h"], lambda _, name: local.get(name))):
        monkeypatch.setenv("HOME", str(lab.folder / "other"))
        files = lock_files(["h"], lambda _, name: local.get(name))
        program = "import sys; from pathlib import Path; from dasklab.running.lock.lock import *\n"
        program += "LabLock(map(Path, sys.argv[1:])).acquire()"
        environment = {name: value for name, value in os.environ.items() if name != "DASKLAB_LOCK"}
        second = subprocess.run(
            [sys.executable, "-c", program, *map(str, files)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"another command is using this lab: {Path(sys.argv[0]).name}" in second.stderr
    assert f"(process {os.getpid()})" in second.stderr


def test_lock_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cannot lock this lab: .*state\.lock: File exists") as caught:
        LabLock([tmp_path / "file" / "state.lock"]).acquire()
    assert "\n" not in caught.value.message
