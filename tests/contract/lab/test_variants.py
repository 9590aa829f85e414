"""Scheduler and worker variants as real processes: the role starts them, and workloads report what runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from tests.ports import free_port

ROOT = Path(__file__).parents[3]
DASK = ROOT / "roles" / "dask"
PATIENCE_S = 60


class Host:
    """A folder that takes the place of a host: it has the programs that the role dask installs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.environment = {**os.environ, "DASK_CONFIG": str(folder / "settings")}

    def program(self, template: str) -> list[str]:
        variables = yaml.safe_load((DASK / "defaults" / "main.yml").read_text())
        variables |= {"dask_venv": sys.prefix, "dask_address": "127.0.0.1", "dask_port": self.port}
        variables |= {"dask_scheduler_address": "127.0.0.1", "inventory_hostname": "worker-1"}
        variables |= {"dask_nanny": False, "dask_dashboard": False, "dask_listen": "--host 127.0.0.1"}
        text = (DASK / "templates" / template).read_text()
        path = self.folder / template.removesuffix(".j2")
        text = text.replace("/var/lib/dasklab", str(self.folder))
        text = text.replace("/opt/dasklab/bin", str(DASK / "files"))
        environment = Environment(undefined=StrictUndefined, autoescape=False)
        environment.filters["ternary"] = lambda value, yes, no: yes if value else no
        path.write_text(environment.from_string(text).render(variables))
        return ["sh", str(path)]

    @contextlib.contextmanager
    def running(self, template: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program; kill it and everything that it started on exit."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*self.program(template), *words],
                env=self.environment | variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def workload(
        self,
        name: str,
        params: dict[str, Any],
        workers: int,
        python: str = sys.executable,
        more: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        program = [python, str(ROOT / "lab" / "dasklab" / "workloads" / f"{name}.py")]
        options = ["--scheduler", f"tcp://127.0.0.1:{self.port}", "--params", json.dumps(params)]
        options += ["--repeats", "1", "--workers", str(workers), "--timeout-s", str(PATIENCE_S)]
        environment = self.environment | {
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{PATIENCE_S}s",
            "PYTHONPATH": str(ROOT / "lab"),  # for --record: another environment may lack dasklab
        }
        process = subprocess.run(
            [*program, *options, *more],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert process.returncode == 0, process.stderr + (self.folder / "log").read_text()
        return dict(json.loads(process.stdout))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    settings = {
        "scheduler": {"preload": [str(DASK / "files" / "dasklab_random.py")], "worker-ttl": None},
        "admin": {"event-loop": "asyncio"},
        "worker": {"profile": {"enabled": False}},
    }
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "trial.yaml").write_text(json.dumps({"distributed": settings}))
    return Host(tmp_path)


def test_requested_variants_run_and_are_reported(host: Host) -> None:
    scheduler_file = host.folder / "scheduler.json"
    command = {"DASKLAB_SCHEDULER": "/opt/dasklab/bin/dasklab_scheduler"}
    with host.running("dasklab_scheduler.sh.j2", str(host.port), str(scheduler_file), **command) as scheduler:
        layout = {"DASKLAB_PROCESSES": "3", "DASKLAB_THREADS": "2", "DASKLAB_WORKER": "zero"}
        with host.running("dasklab_workers.sh.j2", **layout):
            zero = {name: host.workload(*arguments, 3) for name, arguments in WORKLOADS.items()}
        assert json.loads(scheduler_file.read_text())["address"] == f"tcp://127.0.0.1:{host.port}"
        layout = {"DASKLAB_PROCESSES": "2", "DASKLAB_THREADS": "1", "DASKLAB_WORKER": "dask"}
        with host.running("dasklab_workers.sh.j2", **layout):
            real = host.workload("array_study", {"size": 200, "chunk": 100}, 2)
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(PATIENCE_S) == 0

    for document in zero.values():
        processes = document["cluster"]["processes"]
        assert sorted(processes) == ["worker-1-1", "worker-1-2", "worker-1-3"]
        assert [(process["zero"], process["threads"]) for process in processes.values()] == [(True, 2)] * 3
        assert len({process["pid"] for process in processes.values()}) == 1
        assert {sample["answer"] for sample in document["samples"]} == {0.0}  # a placeholder
        assert all(sample["scheduler_cpu_s"] > 0 for sample in document["samples"])
        assert all(sample["transfer_bytes"] == 0 for sample in document["samples"])

    processes = real["cluster"]["processes"]
    assert sorted(processes) == ["worker-1-1", "worker-1-2"]
    assert {(process["host"], process["zero"], process["threads"]) for process in processes.values()} == {
        ("127.0.0.1", False, 1)
    }
    assert len({process["pid"] for process in processes.values()}) == 2
    assert real["check"]["ok"]
    assert real["cluster"]["scheduler"] == {
        "command": "/opt/dasklab/bin/dasklab_scheduler",
        "loop": "asyncio",
        "placement": "dasklab_random",
    }


WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "merge": ("merge", {"tasks": 200}),
    "tree": ("tree_reduction", {"leaves": 50}),
    "shuffle": ("shuffle", {"parts": 8}),
}
