"""``dasklab dashboard`` with a stand-in for ssh that serves what the scheduler would."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from dasklab.cli import main

from tests.unit.dasklab.commands.fake_ssh import FakeSsh, host
from tests.waiting import PATIENCE_S

__all__ = ["host"]
SERVER = f"""#!{sys.executable}
import http.server, os, sys, threading
def end_with_stdin():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=end_with_stdin, daemon=True).start()
port = int(sys.argv[sys.argv.index("-L") + 1].split(":")[1])
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if "NO_CLUSTER" in os.environ:
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["PAGE"].encode())
http.server.HTTPServer(("127.0.0.1", port), Pages).serve_forever()
"""
NO_BOKEH = "<p>Dask needs bokeh>=3.1.0 for the dashboard.</p>"


@pytest.fixture
def scheduler(host: FakeSsh) -> FakeSsh:
    host.program("ssh", SERVER)
    return host


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    yield port


@pytest.mark.parametrize(("page", "path"), [("plots", "/status"), (NO_BOKEH, "/info/main/workers.html")])
def test_page_that_exists_is_named_until_ctrl_c(
    scheduler: FakeSsh, monkeypatch: pytest.MonkeyPatch, free_port: int, page: str, path: str
) -> None:
    monkeypatch.setenv("PAGE", page)
    argv = [sys.executable, "-m", "dasklab", "dashboard", "--no-browser", "--port", str(free_port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        notes = process.stderr.read()
    assert line.startswith(f"http://127.0.0.1:{free_port}{path}")
    assert process.returncode == 0
    assert ("no bokeh" in notes) == (page == NO_BOKEH)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port))


def test_tunnel_does_not_outlive_a_command_that_was_killed(
    scheduler: FakeSsh, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("PAGE", "plots")
    argv = [sys.executable, "-m", "dasklab", "dashboard", "--no-browser", "--port", str(free_port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline().startswith("http")
        process.kill()
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", free_port)).close()
            time.sleep(0.05)


def test_missing_cluster_is_an_error(scheduler: FakeSsh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_CLUSTER", "1")
    result = CliRunner().invoke(main, ["dashboard", "--no-browser"])
    assert result.exit_code == 1
    assert re.search(
        r"no Dask cluster with a dashboard runs on scheduler\s+a cluster runs during", result.output
    )


def test_taken_port_is_refused(scheduler: FakeSsh) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = CliRunner().invoke(main, ["dashboard", "--no-browser", "--port", str(port)])
    assert (result.exit_code, f"port {port} of this machine is taken" in result.output) == (1, True)


def test_host_that_does_not_answer_is_an_error(host: FakeSsh) -> None:
    host.program("ssh", "#!/bin/sh\necho 'Connection refused' >&2\nexit 255\n")
    result = CliRunner().invoke(main, ["dashboard", "--no-browser"])
    assert (result.exit_code, "scheduler does not answer: Connection refused" in result.output) == (1, True)
