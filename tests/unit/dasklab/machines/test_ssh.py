"""ssh to the lab's hosts: without the user's configuration, and with spaces in paths."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import socket
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from dasklab.errors import LabError
from dasklab.machines import ssh
from dasklab.machines.inventory.ansible_inventory import DEFAULT, Inventory
from dasklab.paths import SHARE as ROOT

EXAMPLES = DEFAULT.parent / "examples"


def test_ssh_ignores_the_users_configuration() -> None:
    argv = ssh.command(Inventory(EXAMPLES / "existing" / "hosts.yml"), "worker-1", "-v")
    assert argv == ["ssh", "-F", "/dev/null", "-v", "root@192.0.2.13"]
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "ansible.cfg")
    assert config["ssh_connection"]["ssh_args"].startswith("-F /dev/null ")


@pytest.fixture
def spaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, with a space, of an endpoint that was started."""
    state = tmp_path / "my state"
    state.mkdir()
    (state / "endpoint.json").write_text(json.dumps({"connect": str(state / "connect")}))
    monkeypatch.setenv("DASKLAB_STATE", str(state))
    return state


def test_state_folder_with_a_space_is_quoted(spaced: Path) -> None:
    argv = ssh.command(Inventory(), "worker-1")
    options = [argv[place + 1] for place, word in enumerate(argv) if word == "-o"]
    proxy = next(option for option in options if option.startswith("ProxyCommand="))
    assert shlex.split(proxy.removeprefix("ProxyCommand=")) == [str(spaced / "connect"), "%h", "%p"]
    assert f'UserKnownHostsFile="{spaced}/ssh/known_hosts"' in options
    assert argv[argv.index("-i") + 1] == f"{spaced}/ssh/id_ed25519"
    assert argv[1:3] == ["-F", "/dev/null"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
def test_ssh_accepts_the_quoted_options(spaced: Path) -> None:
    import subprocess

    argv = ssh.command(Inventory(), "worker-1", "-G")
    process = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"userknownhostsfile {spaced}/ssh/known_hosts\n" in process.stdout
    assert f"proxycommand '{spaced}/connect' %h %p\n" in process.stdout


def test_sockets_have_short_paths_under_a_long_home() -> None:
    short, long = "/home/me", f"/home/{'x' * 60}"
    assert ssh.sockets_folder("/state", {"HOME": short}).startswith(f"{short}/.ansible/cp/")
    assert ssh.sockets_folder("/state", {"HOME": short}) != ssh.sockets_folder("/other", {"HOME": short})
    environment = {"HOME": long, "XDG_RUNTIME_DIR": "/run/user/1000"}
    assert ssh.sockets_folder("/state", environment).startswith("/run/user/1000/dasklab/")
    with pytest.raises(LabError, match="too long a path for ssh's sockets"):
        ssh.sockets_folder("/state", {"HOME": long})


@pytest.mark.parametrize("more", [0, 1])
def test_longest_folder_that_the_kernel_takes(more: int) -> None:
    """ssh creates a socket under a longer name, and then renames it."""
    longest = ssh.MAX_SOCKET_BYTES - ssh.SOCKET_NAME_BYTES
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as listener:
        folder = Path(short) / ("x" * (longest - len(short) - 1 + more))
        folder.mkdir()
        path = f"{folder}/{'0' * 10}.{'R' * 16}"
        with pytest.raises(OSError, match="too long") if more else nullcontext():
            listener.bind(path)
