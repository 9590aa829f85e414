"""The network namespace: its commands, its life, its scripts."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from minipve.base import process
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.network import namespace

from tests.waiting import PATIENCE_S

needs_tun = pytest.mark.skipif(
    not os.access("/dev/net/tun", os.W_OK), reason="/dev/net/tun cannot be opened: no lab on this host"
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
def test_command_that_enters_a_namespace(rootless: bool, words: str) -> None:
    assert " ".join(namespace.enter_words(7, rootless)) == words


def test_ordinary_user_gets_a_user_namespace() -> None:
    assert "--map-root-user" in namespace.create_words(rootless=True)
    assert "--user" not in namespace.create_words(rootless=False)


@needs_tun
def test_namespace_is_created_once_and_removed_completely(paths: Paths) -> None:
    created = namespace.ensure(paths)
    try:
        assert namespace.ensure(paths) == created and namespace.find(paths) == created
        assert not created.inside
        words = [paths.enter_shell, "-c", "ls /proc/sys/net/ipv4/conf; readlink /proc/self/ns/net"]
        output = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        assert set(output[:-1]) == {"all", "default", "lo"}
        assert output[-1] != str(Path("/proc/self/ns/net").readlink())
    finally:
        created.destroy()
    assert namespace.find(paths) is None and process.start_time(created.pid) is None
    assert not paths.enter_shell.exists() and list(paths.run.iterdir()) == []


@needs_tun
def test_connect_script_is_a_proxy_command(paths: Paths) -> None:
    created = namespace.ensure(paths)
    try:
        listen = "echo hello | timeout 10 nc -N -l 127.0.0.1 7007"
        server = subprocess.Popen([paths.enter_shell, "-c", listen])
        output = ""
        for _ in range(50):
            result = subprocess.run(
                [paths.connect, "127.0.0.1", "7007"], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            output = result.stdout
            if output:
                break
            time.sleep(0.1)
        assert output == "hello\n"
        server.wait(timeout=PATIENCE_S)
    finally:
        created.destroy()


def test_missing_tun_device_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match="/dev/net/tun cannot be opened: Permission denied") as refused:
        namespace.require_tun()
    assert "chmod 0666 /dev/net/tun" in str(refused.value.hint)
