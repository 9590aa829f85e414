"""Start this host's part of a fresh Spark cluster, and stop it.

The master runs on the scheduler's host, one worker on each worker's; on the client only the configuration
is written, which the workload's driver reads. Each service ends after ``ttl_s``, whatever became of the
caller.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dasklab_guest.common import HostError, start_unit, stop_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dasklab_guest.common import Document

WORK = Path("/var/lib/dasklab/spark")
UNITS = "spark-*"
DAEMON_MEMORY = "256m"  # a JVM needs some hundred megabytes on top of its heap, and the daemons do little


def home_of(venv: str) -> Path:
    """Return the folder of pyspark in an environment.

    Raises:
        HostError: pyspark is not installed there.
    """
    folders = sorted(Path(venv).glob("lib/python3*/site-packages/pyspark"))
    if not folders:
        raise HostError(f"pyspark is not installed in {venv}")
    return folders[0]


def start(
    venv: str,
    address: str,
    settings: Mapping[str, str],
    ttl_s: float,
    service: str = "",
    java: Sequence[str] = (),
) -> Document:
    """Write Spark's configuration and start this host's service.

    Args:
        venv: the environment with pyspark.
        address: this host's lab address.
        settings: Spark's own settings.
        ttl_s: seconds until the service ends in any case.
        service: ``spark-master`` or ``spark-worker``; "" where none runs.
        java: class and arguments of the service.
    """
    stop()
    home = home_of(venv)
    (home / "conf").mkdir(exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (home / "conf" / "spark-defaults.conf").write_text("".join(lines))
    variables = f"export SPARK_LOCAL_IP={address}\nexport SPARK_DAEMON_MEMORY={DAEMON_MEMORY}\n"
    (home / "conf" / "spark-env.sh").write_text(variables)
    if service:
        start_unit(
            service,
            ["env", f"SPARK_HOME={home}", str(home / "bin" / "spark-class"), *java],
            RuntimeMaxSec=ttl_s,
            KillSignal="SIGKILL",
            SuccessExitStatus="KILL",
            TimeoutStopSec=3,
        )
    return {"service": service}


def stop() -> Document:
    """Stop the services and remove their files.

    Raises:
        HostError: one is still active.
    """
    stop_units(UNITS)
    shutil.rmtree(WORK, ignore_errors=True)
    output = subprocess.run(
        ["systemctl", "is-active", UNITS], capture_output=True, text=True, check=False
    ).stdout
    if "active" in output.split():
        raise HostError("Spark does not stop; see: journalctl -u 'spark-*'")
    return {}


def reset() -> None:
    """Stop the services, and forget that a killed one counts as failed."""
    stop()
    subprocess.run(["systemctl", "reset-failed", UNITS], capture_output=True, check=False)


STEPS = {"start": start, "stop": stop}
