from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from minipve import process
from minipve.network import namespace
from minipve.paths import Paths
from minipve.process import MachineError
from minipve.user_error import UserError

from tests.waiting import PATIENCE_S

needs_tun = pytest.mark.skipif(
    not os.access("/dev/net/tun", os.W_OK), reason="/dev/net/tun cannot be opened: no lab on this machine"
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


@pytest.mark.parametrize(
    ("rootless", "words"),
    [
        (False, "nsenter --target=7 --net --"),
        (True, "nsenter --target=7 --user --net --preserve-credentials --"),
    ],
)
def test_the_way_in(rootless: bool, words: str) -> None:
    assert " ".join(namespace.enter_words(7, rootless)) == words


def test_an_ordinary_user_gets_a_user_namespace_around_it() -> None:
    assert "--map-root-user" in namespace.create_words(rootless=True)
    assert "--user" not in namespace.create_words(rootless=False)


@needs_tun
def test_it_is_made_once_entered_by_its_scripts_and_leaves_nothing(paths: Paths) -> None:
    made = namespace.ensure(paths)
    try:
        assert namespace.ensure(paths) == made and namespace.find(paths) == made
        assert not made.inside
        words = [paths.enter_shell, "-c", "ls /proc/sys/net/ipv4/conf; readlink /proc/self/ns/net"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert set(said[:-1]) == {"all", "default", "lo"}
        assert said[-1] != str(Path("/proc/self/ns/net").readlink())
    finally:
        made.destroy()
    assert namespace.find(paths) is None and process.start_time(made.pid) is None
    assert not paths.enter_shell.exists() and list(paths.run.iterdir()) == []


@needs_tun
def test_connect_is_a_proxy_command_into_it(paths: Paths) -> None:
    made = namespace.ensure(paths)
    try:
        listen = "echo hello | timeout 10 nc -N -l 127.0.0.1 7007"
        server = subprocess.Popen([paths.enter_shell, "-c", listen])
        said = ""
        for _ in range(50):
            done = subprocess.run(
                [paths.connect, "127.0.0.1", "7007"], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            said = done.stdout
            if said:
                break
            time.sleep(0.1)
        assert said == "hello\n"
        server.wait(timeout=PATIENCE_S)
    finally:
        made.destroy()


def test_without_tun_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match="/dev/net/tun cannot be opened: Permission denied") as refused:
        namespace.require_tun()
    assert "chmod 0666 /dev/net/tun" in str(refused.value.hint)


def test_a_process_is_known_by_its_start_and_ended(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    process.remember(child.pid, tmp_path / "pid")
    assert process.recall(tmp_path / "pid") == child.pid
    (tmp_path / "other").write_text(f"{child.pid} 1\n")
    assert process.recall(tmp_path / "other") is None
    process.end(child.pid, timeout_s=5)
    assert process.recall(tmp_path / "pid") is None
    child.returncode = 0  # reaped by `end`
    process.end(child.pid)  # ending it again is no mistake


def test_one_that_does_not_listen_is_killed() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
        process.end(child.pid, timeout_s=0.2)
    assert child.poll() is not None or process.start_time(child.pid) is None
    child.returncode = -9


def test_failures_tell_their_last_words() -> None:
    with pytest.raises(MachineError, match=r"command 'sh -c echo no >&2; exit 3' failed: exit code 3 \(no\)"):
        process.run(["sh", "-c", "echo no >&2; exit 3"])
    with pytest.raises(MachineError, match="failed: got timeout"):
        process.run(["sleep", "9"], timeout_s=0.05)


def test_paths_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MINIPVE_STATE", "MINIPVE_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert Paths.of("lab1").state == Path("/home/me/.local/state/minipve/lab1")
    assert Paths.of("lab1").cache == Path("/home/me/.cache/minipve")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("MINIPVE_STATE", str(tmp_path))
    assert Paths.of("lab1") == Paths(tmp_path, Path("/x/minipve"))
