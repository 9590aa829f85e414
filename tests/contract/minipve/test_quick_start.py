"""The quick start of the README and the pytest example of the how-to work as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
README, HOW_TO = ROOT / "lab/minipve/README.md", ROOT / "docs/how-to/minipve.md"


def blocks(file: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", file.read_text(), re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user without any state, with this checkout's minipve first in the PATH."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "minipve"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m minipve "$@"\n')
    program.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MINIPVE_", "PROXMOX_"))}
    folders = {"XDG_STATE_HOME": f"{tmp_path}/state", "XDG_CACHE_HOME": f"{tmp_path}/cache"}
    return clean | folders | {"HOME": str(tmp_path), "PATH": f"{bin_folder}:{clean['PATH']}"}


def test_quick_start_runs_as_written(environment: dict[str, str], tmp_path: Path) -> None:
    """In a network namespace, so that port 8006 is free."""
    install, start = blocks(README, "sh")
    assert install.startswith("pip install 'dasklab[minipve]'\nminipve check")
    alone = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f"set -eu\nip link set lo up\nminipve check\n{start}"
    result = subprocess.run(
        ["unshare", *alone, "--net", "bash", "-c", script],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "started: https://127.0.0.1:8006" in result.stdout
    assert '"repoid":"6d696e69707665"' in result.stdout
    assert ":qmcreate:100:root@pam!minipve:" in result.stdout
    assert result.stdout.endswith("stopped\n")
    assert not (tmp_path / "state/minipve/default").exists()


def test_pytest_example_runs_as_written(environment: dict[str, str], tmp_path: Path) -> None:
    examples = [text for text in blocks(HOW_TO, "python") if text.startswith("# ")]
    for text in examples:
        (tmp_path / text.split()[1]).write_text(text)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "1 passed" in result.stdout, result.stdout + result.stderr
    assert len(examples) == 2


def test_variables_describe_the_endpoint(environment: dict[str, str], tmp_path: Path) -> None:
    def minipve(*words: str) -> subprocess.CompletedProcess[str]:
        command = [f"{tmp_path}/bin/minipve", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)

    assert "no endpoint runs in" in minipve("env").stderr
    try:
        started = minipve("serve", "--detach").stdout
        port = re.search(r":(\d+) ", started)[1]
        lines = dict(
            line.removeprefix("export ").split("=", 1) for line in minipve("env").stdout.splitlines()
        )
        assert (lines["PROXMOX_PORT"], lines["PROXMOX_USER"]) == (port, "root@pam")
        assert Path(lines["PROXMOX_CA_FILE"]).is_file()
        assert Path(lines["MINIPVE_CONNECT"]).is_file()
        again = minipve("serve", "--detach", "--port", str(int(port) ^ 1))
        assert (again.returncode, f"already listens on port {port}" in again.stderr) == (1, True)
    finally:
        minipve("stop", "--purge")
