"""``dasklab.record`` on clusters that others manage: over SSH, by dask-gateway, and by SLURM.

All three run on this machine: an SSH server of asyncssh, dask-gateway with its local backend, and SLURM
(Debian's packages slurm-wlm and munge) with one node. Nothing of them is left afterwards.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dasklab
import pytest
from dasklab import records
from distributed import Client

from tests.ports import free_port, listens
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]  # from where a worker imports this module
SLURM = ("slurmctld", "slurmd", "sbatch", "munged")
COMPLETE = ["decided_s", "sent_s", "arrived_s", "ready_s", "executing_s", "start_s", "stop_s", "handled_s"]


def inc(number: int) -> int:
    return number + 1


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def running(log: Path, *argv: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside the test; end it with all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output, start_new_session=True, **options)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def assert_recorded(client: Client, folder: Path) -> None:
    """Record a computation on two workers: every task has all its stages on one clock, and nothing failed."""
    client.wait_for_workers(2, timeout=PATIENCE_S)
    with dasklab.record(client, folder) as run:
        parts = client.map(inc, range(30), pure=False)
        assert client.submit(sum, parts, pure=False).result() == 465
    assert run.failures == {}
    tasks = records.load(folder)["tasks"]
    assert len(tasks) == 31 and tasks.worker.nunique() == 2
    assert tasks[COMPLETE].notna().all(axis=None)


@pytest.fixture(autouse=True)
def own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what dask-gateway and dask-jobqueue write when they are imported out of the user's home."""
    monkeypatch.setattr("dask.config.PATH", str(tmp_path / "dask"))
    monkeypatch.chdir(ROOT)


# over SSH


async def serve_ssh(port: int) -> None:
    """Let everybody in who reaches this machine's loopback, and run each command in a shell, as sshd does."""
    import asyncssh

    class OpenServer(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

    async def run(process: Any) -> None:
        shell = await asyncio.create_subprocess_shell(
            process.command, stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1, start_new_session=True
        )
        try:
            await process.redirect(stdout=shell.stdout, stderr=shell.stderr)
            status = await shell.wait()
            await process.stdout.drain()  # the rest of the output, before the channel closes
            await process.stderr.drain()
            process.exit(status)
        finally:
            if shell.returncode is None:
                os.killpg(shell.pid, signal.SIGKILL)

    key = asyncssh.generate_private_key("ssh-ed25519")
    await asyncssh.create_server(
        OpenServer, "127.0.0.1", port, server_host_keys=[key], process_factory=run, encoding=None
    )
    await asyncio.Event().wait()


def test_a_cluster_over_ssh(tmp_path: Path) -> None:
    pytest.importorskip("asyncssh", reason="asyncssh is missing: pip install asyncssh")
    from distributed import SSHCluster

    port = free_port()
    server = (sys.executable, "-c", f"from {__name__} import *; asyncio.run(serve_ssh({port}))")
    with running(tmp_path / "ssh.log", *server, cwd=ROOT):
        until(lambda: listens(port), "the SSH server")
        connect = {"port": port, "known_hosts": None, "username": "dask"}
        worker = {"nthreads": 1, "host": "127.0.0.1"}
        with (
            SSHCluster(
                ["127.0.0.1"] * 3,
                connect_options=connect,
                worker_options=worker,
                scheduler_options={"port": 0, "dashboard": False, "host": "127.0.0.1"},
                remote_python=sys.executable,
            ) as cluster,
            Client(cluster) as client,
        ):
            assert_recorded(client, tmp_path / "run")


# dask-gateway

GATEWAY = """
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:{server}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.UnsafeLocalBackend.clusters_directory = "{folder}/clusters"
c.ClusterConfig.scheduler_cmd = ["{python}", "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = ["{python}", "-m", "distributed.cli.dask_worker"]
"""


def test_a_cluster_of_dask_gateway(tmp_path: Path) -> None:
    reason = "dask-gateway is missing: pip install dask-gateway 'dask-gateway-server[local]'"
    pytest.importorskip("dask_gateway_server", reason=reason)
    gateway = pytest.importorskip("dask_gateway", reason=reason)
    gateway.Gateway.__del__ = lambda self: None  # its own asks for an event loop that has ended, at any time
    proxy = free_port()
    file = tmp_path / "gateway.py"
    file.write_text(GATEWAY.format(server=free_port(), proxy=proxy, folder=tmp_path, python=sys.executable))
    program = Path(sys.executable).with_name("dask-gateway-server")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    with running(tmp_path / "gateway.log", str(program), "-f", str(file), env=environment, cwd=tmp_path):
        until(lambda: answers(f"http://127.0.0.1:{proxy}/api/health"), "dask-gateway")
        with (
            gateway.Gateway(f"http://127.0.0.1:{proxy}") as entrance,
            entrance.new_cluster() as cluster,
            cluster.get_client() as client,
        ):
            cluster.scale(2)
            assert_recorded(client, tmp_path / "run")


# SLURM

SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={controller}
SlurmdPort={node}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A SLURM of one node, with a munge of its own."""
    missing = [
        program for program in SLURM if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if missing or os.geteuid():
        pytest.skip(
            f"SLURM needs root, and {', '.join(missing) or 'nothing else'}: apt install slurm-wlm munge"
        )
    munge = tmp_path / "munge"
    munge.mkdir(mode=0o755)
    key = munge / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {
        "key-file": key,
        "socket": munge / "socket",
        "pid-file": munge / "pid",
        "seed-file": munge / "seed",
    }
    options = [f"--{name}={path}" for name, path in files.items()]
    host = socket.gethostname().partition(".")[0]
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(
        SLURM_CONF.format(host=host, folder=tmp_path, controller=free_port(), node=free_port())
    )
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    monkeypatch.setenv("PATH", "/usr/sbin", prepend=os.pathsep)
    with (
        running(tmp_path / "munge.log", "munged", "--foreground", "--force", *options),
        running(tmp_path / "slurmctld.log", "slurmctld", "-D", "-f", str(configuration)),
        running(tmp_path / "slurmd.log", "slurmd", "-D", "-f", str(configuration)),
    ):
        sinfo = ["sinfo", "--noheader", "--format=%T"]
        until(lambda: "idle" in subprocess.run(sinfo, capture_output=True, text=True).stdout, "SLURM")
        yield


@pytest.mark.usefixtures("slurm")
def test_a_cluster_of_slurm(tmp_path: Path) -> None:
    jobqueue = pytest.importorskip(
        "dask_jobqueue", reason="dask-jobqueue is missing: pip install dask-jobqueue"
    )
    with (
        jobqueue.SLURMCluster(
            queue="main",
            cores=1,
            processes=1,
            memory="500MB",
            interface="lo",
            job_extra_directives=["--export=ALL"],
            log_directory=str(tmp_path / "jobs"),
            local_directory=str(tmp_path / "spill"),
            python=sys.executable,
            scheduler_options={"dashboard_address": ":0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(jobs=2)
        assert_recorded(client, tmp_path / "run")
