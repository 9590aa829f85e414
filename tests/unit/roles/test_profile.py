"""Whom py-spy looks at: a service's process, or the Python processes that its shell started."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class Host:
    """Processes below a directory like /proc, and a systemd that notes what it was told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.did: list[list[str]] = []
        self.path = root / "profile" / "profile-worker-1"

    def process(self, pid: int, program: str, *children: int) -> None:
        folder = self.root / "proc" / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "task" / str(pid) / "children").write_text(" ".join(map(str, children)))
        (folder / "exe").symlink_to(f"/usr/bin/{program}")

    def run(self, words: list[str]) -> str:
        self.did.append(words)
        return "10\n" if words[1] == "show" else ""


@pytest.fixture
def there(profile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path)
    monkeypatch.setattr(profile, "PROC", tmp_path / "proc")
    monkeypatch.setattr(profile, "COME_S", 0.1)
    monkeypatch.setattr(profile, "run", found.run)
    return found


def started(profile: ModuleType, there: Host, processes: int = 1) -> Any:
    return profile.start(there.path, "dask-worker.service", "/opt/py-spy", processes, 600)["watched"]


def outputs(there: Host) -> list[str]:
    words = [word for command in there.did for word in command]
    return [Path(word).name for word in words if word.startswith("--output=")]


def test_a_service_that_is_python_is_watched_itself_whatever_it_starts(
    profile: ModuleType, there: Host
) -> None:
    there.process(10, "python3.11", 11)
    there.process(11, "python3.11")
    assert started(profile, there) == [10]
    assert outputs(there) == ["profile-worker-1.json"]


def test_of_a_shell_each_python_process_is_watched_under_a_name_of_its_own(
    profile: ModuleType, there: Host
) -> None:
    there.process(10, "dash", 11, 12, 13)
    there.process(11, "python3.11")
    there.process(12, "sleep")
    there.process(13, "python3.11")
    assert started(profile, there, processes=2) == [11, 13]
    assert outputs(there) == ["profile-worker-1-1.json", "profile-worker-1-2.json"]


def test_a_service_without_python_is_waited_for_and_then_left(profile: ModuleType, there: Host) -> None:
    there.process(10, "rsds")
    assert started(profile, there) == []
    assert outputs(there) == []


def test_a_unit_ends_with_the_signal_that_makes_py_spy_write(profile: ModuleType) -> None:
    words = profile.command("/opt/py-spy", 10, Path("/var/profile-worker-1.json"), 600)
    assert "--property=KillSignal=SIGINT" in words
    assert "--property=RuntimeMaxSec=600" in words
    assert "--property=StandardError=truncate:/var/profile-worker-1.said" in words


def test_the_end_tells_each_file_s_bytes(profile: ModuleType, there: Host) -> None:
    there.path.parent.mkdir()
    there.path.with_suffix(".json").write_text("{}")
    there.path.with_suffix(".said").write_text("py-spy> Wrote\n")
    assert profile.end(there.path) == {"files": {"profile-worker-1.json": 2}, "said": []}


def test_where_nothing_was_written_py_spy_s_last_words_are_told(profile: ModuleType, there: Host) -> None:
    there.path.parent.mkdir()
    there.path.with_suffix(".said").write_text("Error:\nPermission Denied\n")
    assert profile.end(there.path) == {"files": {}, "said": ["Permission Denied"]}
