"""The arguments with which a host starts its part of a Spark cluster. Pure.

All ports are fixed, so that a capture or a firewall can name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dasklab.spark.settings import spark_text

MASTER_PORT, WORKER_PORT, DRIVER_PORT = 7077, 7078, 7079
BLOCK_PORT, DRIVER_BLOCK_PORT = 7080, 7081
MASTER_PAGE_PORT, WORKER_PAGE_PORT = 7082, 7083  # the pages of master and worker cannot be turned off
EXECUTOR_MEMORY_MB = 1024  # an executor's heap: half of what the lab's workers have; its JVM takes more
DRIVER_MEMORY_MB = 512  # Spark refuses less than 450
WORK = "/var/lib/dasklab/spark"
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"


class SparkHost(Protocol):
    """A host of the lab; ``spark_cores`` are the cores of a Spark worker, 0 for all."""

    @property
    def role(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def scheduler_address(self) -> str: ...
    @property
    def spark_cores(self) -> int: ...


Settings = Mapping[str, bool | int | float | str]


def master(address: str) -> str:
    """Return the address of the master for workers and drivers."""
    return f"spark://{address}:{MASTER_PORT}"


def start(requested: Settings, ttl_s: int, host: SparkHost, venv: str, takes_part: bool) -> dict[str, Any]:
    """Return the arguments of the guest program's step ``spark.start``.

    Args:
        requested: the trial's own settings of Spark.
        ttl_s: seconds after which the host ends its part of the cluster by itself.
        host: the host to start.
        venv: the virtual environment with pyspark.
        takes_part: whether the host is part of this trial's cluster.
    """
    service, java = "", []
    if takes_part and host.role == "scheduler":
        service, java = "spark-master", master_command(host.address)
    elif takes_part:
        service, java = "spark-worker", worker_command(host)
    return {
        "venv": venv,
        "address": host.address,
        "settings": settings(requested, host.address),
        "ttl_s": ttl_s,
        "service": service,
        "java": java,
    }


def settings(requested: Settings, address: str) -> dict[str, str]:
    """Return Spark's settings on a host: the lab's own, then the trial's."""
    return {
        "spark.driver.host": address,
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(DRIVER_BLOCK_PORT),
        "spark.blockManager.port": str(BLOCK_PORT),
        "spark.port.maxRetries": "0",
        "spark.driver.memory": f"{DRIVER_MEMORY_MB}m",
        "spark.executor.memory": f"{EXECUTOR_MEMORY_MB}m",
        "spark.local.dir": WORK,
        "spark.master.rest.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **{name: spark_text(value) for name, value in requested.items()},
    }


def master_command(address: str) -> list[str]:
    return [
        MASTER_CLASS,
        "--host",
        address,
        "--port",
        str(MASTER_PORT),
        "--webui-port",
        str(MASTER_PAGE_PORT),
    ]


def worker_command(host: SparkHost) -> list[str]:
    cores = ["--cores", str(host.spark_cores)] if host.spark_cores else []
    ports = ["--port", str(WORKER_PORT), "--webui-port", str(WORKER_PAGE_PORT)]
    memory = ["--memory", f"{EXECUTOR_MEMORY_MB}m", "--work-dir", WORK]
    return [WORKER_CLASS, "--host", host.address, *ports, *cores, *memory, master(host.scheduler_address)]
