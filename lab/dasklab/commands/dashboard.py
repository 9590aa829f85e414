"""``dasklab dashboard``: the web pages of the lab's Dask cluster, through ssh."""

from __future__ import annotations

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dasklab.console.lab.guest_program import SSH_FAILED, failure
from dasklab.console.options import inventory_option
from dasklab.errors import LabError
from dasklab.machines import ssh
from dasklab.machines.endpoint import presence
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.variables import open_lab
from dasklab.terminal import echo

DASHBOARD_PORT = 8787  # Dask's default
PLOTS, TABLES = "/status", "/info/main/workers.html"  # the first needs bokeh on the scheduler
SSH_START_S = 60.0  # an emulated machine is slow


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port on this machine. Default: a free one.")
@click.option("--browser/--no-browser", default=True, help="Whether to open a web browser.")
@inventory_option
def dashboard(port: int | None, browser: bool, inventory: Path) -> None:
    """Open Dask's dashboard of the trial that is running, until Ctrl-C.

    Its plots need the package bokeh on the scheduler. Without it you get Dask's pages of workers, tasks and
    logs. A dashboard that is looked at takes CPU time from the scheduler: do not use the trial's results.
    """
    lab = open_lab(inventory)
    host = lab.hosts("dask_scheduler")[0]
    presence.require_machines(lab, host)
    port = _free_port(port)
    try:
        with _tunnel(lab, host, port) as process:
            page = _page(host, port)
            if page != PLOTS:
                echo("The scheduler has no bokeh: these are Dask's pages without plots.", err=True)
            url = f"http://127.0.0.1:{port}{page}"
            echo(f"{url}  (Ctrl-C closes it)")
            if browser:
                click.launch(url)
            process.wait()
    except KeyboardInterrupt:
        return
    raise LabError(f"the connection to {host} ended")


def _free_port(requested: int | None) -> int:
    """Return a free port of this machine.

    Raises:
        LabError: the requested one is taken.
    """
    try:
        with socket.create_server(("127.0.0.1", requested or 0)) as server:
            port: int = server.getsockname()[1]
            return port
    except OSError:
        raise LabError(f"port {requested} of this machine is taken", "choose another --port") from None


@contextmanager
def _tunnel(lab: Inventory, host: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Lead a port of this machine to the scheduler's dashboard.

    The connection is not shared, as a shared one would keep the port open after our end. It ends with its
    standard input, so it does not outlive us, however we end.

    Raises:
        LabError: the host does not answer, or the port is taken.
    """
    options = ["-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"]
    options += ["-L", f"127.0.0.1:{port}:127.0.0.1:{DASHBOARD_PORT}"]
    process = subprocess.Popen(
        [*ssh.command(lab, host, *options), "cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + SSH_START_S
        while not _accepts(port):
            if process.poll() is not None:
                assert process.stderr
                raise failure(host, SSH_FAILED, process.stderr.read().strip().rpartition("\n")[2])
            if time.monotonic() > deadline:
                raise failure(host, SSH_FAILED, f"no connection within {SSH_START_S:.0f} s")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.communicate()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _page(host: str, port: int) -> str:
    """Return the page to open.

    Raises:
        LabError: no cluster runs, or it has no dashboard.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", PLOTS)
        text = connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        raise LabError(
            f"no Dask cluster with a dashboard runs on {host}", "a cluster runs during a trial: dasklab run"
        ) from None
    finally:
        connection.close()
    return TABLES if b"needs bokeh" in text else PLOTS
