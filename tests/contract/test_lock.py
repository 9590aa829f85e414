"""The lab's lock between real processes, and an ansible-playbook that is killed or would never end."""

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
from dasklab.running import playbook
from dasklab.running.lock import LabLock, lock_lab, lock_names
from dasklab.running.lock_holders import holders
from dasklab.running.watchdog import Watchdog

DRIVER = """
import sys
from pathlib import Path
from dasklab.machines.inventory import Inventory
from dasklab.running import playbook
from dasklab.running.lock import lock_lab, lock_names
lab = Inventory(Path(sys.argv[1]))
with lock_lab(lock_names(lab.hosts(), lab.optional)):
    playbook.run(sys.argv[2], lab.path, quiet=True)
"""


class Place:
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
    def names(self) -> list[str]:
        """Its locks: those of the inventory's lab."""
        return [f"state folder {self.folder / 'state'}", *(f"machine {name}" for name in "abc")]

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
        """The processes that work for this place."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(self.folder).encode() in entry.read_bytes() and int(entry.parts[2]) != os.getpid():
                    found.append(int(entry.parts[2]))
        return found


def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = Place(tmp_path)
    yield place
    for pid in place.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for child in place.started:
        child.wait()
        assert child.stdout
        child.stdout.close()


def test_a_killed_driver_leaves_the_lab_locked_until_its_playbook_has_ended(place: Place) -> None:
    driver = place.start_driver()
    place.await_tasks()
    [file] = [path for path in (place.folder / "home").rglob("*") if path.is_file() and holders(path)][:1]
    driver.kill()
    driver.wait()
    left = holders(file)
    assert left and driver.pid not in left, "the playbook has not inherited the lock"
    refused = subprocess.run(["flock", "--nonblock", str(file), "true"], check=False)
    assert refused.returncode == 1, "the lab is free while a playbook is at work there"
    with lock_lab(place.names) as ended:
        assert ended
        assert place.processes() == [], "two commands are at work on the lab"
    assert not file.exists()


def test_a_command_is_refused_while_a_playbook_started_by_hand_changes_the_lab(place: Place) -> None:
    by_hand = place.start_playbook(place.book)
    place.await_tasks()
    with pytest.raises(LabError, match=rf"using this lab: ansible-playbook .*process {by_hand.pid}"):
        LabLock(place.names).acquire()
    by_hand.terminate()
    by_hand.wait()
    lock = LabLock(place.names)
    until(lambda: not place.processes())
    assert not lock.acquire()
    lock.release()


def test_a_playbook_is_refused_while_a_command_changes_the_lab(place: Place) -> None:
    """By a second inventory file of the same lab as well; and nothing of it is done."""
    other = place.write_inventory("other.yml")
    with lock_lab(place.names):
        for inventory in (place.inventory, other):
            refused = place.start_playbook(place.book, inventory=inventory)
            printed, _ = refused.communicate(timeout=60)
            assert refused.returncode == 1
            assert "another command is using this lab" in printed
            assert f"(process {os.getpid()})" in printed
            assert "Traceback" not in printed
    assert not list(place.folder.glob("begun-*"))


def test_a_playbook_that_only_looks_needs_no_lock(place: Place) -> None:
    check = place.start_playbook(place.book, "--check")
    with lock_lab(place.names):
        place.write_book("lab", lab_lock="unneeded")
        looks = place.start_playbook(place.book)
        place.await_tasks()
        looks.terminate()
        printed, _ = check.communicate(timeout=60)
        assert check.returncode == 0, printed


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_but_those_that_look_takes_the_lock(path: Path) -> None:
    needs = {play.get("vars", {}).get("lab_lock", "locked") for play in yaml.safe_load(path.read_text())}
    looks = {"status": {"unneeded"}, "wait": {"unneeded"}, "lab": {"locked", "released"}}
    assert needs == looks.get(path.stem, {"locked"})


def ansible_of(place: Place, forks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FORKS", str(forks))
    monkeypatch.setattr(playbook, "Watchdog", partial(Watchdog, idle_s=3.0))


def kill_when_begun(place: Place, count: int, *, worker: bool) -> threading.Thread:
    """Kill the Ansible of this process, or the first of its workers, once so many tasks have begun."""

    def kill() -> None:
        place.await_tasks(count)
        [main] = [pid for pid in place.processes() if parent(pid) == os.getpid()]
        workers = [pid for pid in place.processes() if parent(pid) == main]
        os.kill(min(workers) if worker else main, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def test_a_dead_worker_does_not_hang_the_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer forks than hosts its place is taken by the next worker: Ansible would wait for ever."""
    ansible_of(place, 2, monkeypatch)
    place.book.write_text(place.book.read_text().replace("sleep 60", "sleep 5"))
    killer = kill_when_begun(place, 2, worker=True)
    with (
        lock_lab(place.names),
        pytest.raises(playbook.PlaybookEndedError, match="an Ansible worker died"),
    ):
        playbook.run(str(place.book), place.inventory, quiet=True)
    killer.join()
    assert place.processes() == []


def test_a_dead_ansible_is_named_and_its_workers_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ansible_of(place, 5, monkeypatch)
    killer = kill_when_begun(place, 3, worker=False)
    with lock_lab(place.names):
        with pytest.raises(LabError, match="ansible-playbook was killed by SIGKILL"):
            playbook.run(str(place.book), place.inventory, quiet=True)
        until(lambda: place.processes() == [], 5)
    killer.join()


def test_a_playbook_is_ended_after_its_deadline(place: Place) -> None:
    began = time.monotonic()
    with (
        lock_lab(place.names),
        pytest.raises(LabError, match=r"sleep\.yml was stopped: it did not finish within 3 s"),
    ):
        playbook.run(str(place.book), place.inventory, quiet=True, limit_s=3)
    assert time.monotonic() - began < 30
    assert place.processes() == []


def test_a_lab_has_the_same_name_in_every_inventory_of_it() -> None:
    own = {"lab_state_dir": "/s", "endpoint_start": ["x"], "lab_name": "one"}
    assert lock_names(["h"], lambda _, name: own.get(name)) == ["state folder /s"]
    remote = {"lab_name": "one", "proxmox": {"host": "pve.example", "port": 8006}}
    assert lock_names(["h"], lambda _, name: remote.get(name)) == ["lab one of pve.example:8006"]
    made = {("a", "ansible_host"): "192.0.2.1"}
    assert lock_names(["b", "a"], lambda *key: made.get(key)) == ["machine 192.0.2.1", "machine b"]
