"""Run a workload on the client: a Python script that computes on the cluster and writes its timings.

It runs in a scope of systemd, which ends it after its time to live even if the connection is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from dasklab_guest.common import RUNTIME, HostError, UnsupportedError, read, stop_units
from dasklab_guest.order import TRIAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dasklab_guest.common import Document

SCRIPTS = Path("/opt/dasklab/workloads")
LOG = Path("/var/log/dasklab-workload.log")
UNIT = "dasklab-workload.scope"
FAULT_SIGNAL = RUNTIME / "fault-started"  # the file that armed faults wait for: fault.py
MISSING_PACKAGE = 3  # exit status of a workload whose package is not installed
VARIABLES = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PREFIXES = {"dask": "", "spark": "_spark_"}  # of the scripts, by engine
LAST_LINES = 5  # of the log, in the message of a failure


def run(
    name: str,
    scheduler: str,
    python: str,
    ttl_s: float,
    engine: str = "dask",
    params: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    source: str = "",
    signal_faults: bool = False,
    output: str = "timings.json",
    record: str = "",
) -> Document:
    """Run a workload and keep its timings in ``output``, in the folder of the trial.

    Args:
        name: the workload, a script without ``.py``.
        scheduler: the cluster's address.
        python: the Python that runs it.
        ttl_s: seconds after which the workload counts as hanging and is ended.
        engine: ``dask`` or ``spark``.
        params: the workload's parameters.
        options: further options of the workload's command line.
        source: the script itself, where it does not come with dasklab.
        signal_faults: whether to signal the start of the first timed repeat to armed faults.
        output: the name of the file.
        record: the name of the folder for a record of the cluster; "" for none.

    Raises:
        UnsupportedError: a package that the workload needs is not installed.
        HostError: it failed or hung; the message has its last lines.
    """
    script = SCRIPTS / f"{PREFIXES[engine]}{name}.py"
    if source:
        script.write_text(source)
    argv = [python, str(script), "--scheduler", scheduler]
    argv += ["--params", json.dumps(dict(params or {})), "--timeout-s", str(ttl_s)]
    argv += ["--signal", str(FAULT_SIGNAL)] if signal_faults else []
    argv += ["--record", str(TRIAL / record)] if record else []
    TRIAL.mkdir(parents=True, exist_ok=True)
    execute([*argv, *options, "--output", str(TRIAL / output)], ttl_s)
    return {"output": output}


def report(output: str = "performance-report.html", **arguments: Any) -> Document:
    """Run a workload under Dask's performance report. It is no measurement: a failure is only an answer.

    Args:
        output: the name of the report's file.
        arguments: as of ``run``.
    """
    options = [*arguments.pop("options", ()), "--report", str(TRIAL / output)]
    try:
        run(**arguments, options=options, output="reported-timings.json")
    except HostError as error:
        return {"problem": str(error)}
    return {"output": output}


def execute(argv: Sequence[str], ttl_s: float) -> None:
    """Run a command in a scope and wait for its end."""
    stop_units(UNIT)
    variables = {**os.environ, **VARIABLES, "DASK_CONFIG": str(RUNTIME / "dask")}
    scope = ["systemd-run", "--quiet", "--scope", "--collect", f"--unit={UNIT}"]
    scope += [f"--property=RuntimeMaxSec={ttl_s + 10}"]
    try:
        with LOG.open("w") as log:
            process = subprocess.run(
                [*scope, *argv],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
                timeout=ttl_s,
            )
    except subprocess.TimeoutExpired:
        reset()
        raise HostError(f"the workload hangs: it was not done within {ttl_s:g} s{last_words()}") from None
    if process.returncode == MISSING_PACKAGE:
        raise UnsupportedError(last_words().removeprefix(": ") or "a package is missing")
    if process.returncode:
        raise HostError(f"the workload ended with status {process.returncode}{last_words()}")


def last_words() -> str:
    """Return the last lines of the log, as the end of a message."""
    lines = [line for line in read(LOG).splitlines() if line.strip()]
    return ": " + " | ".join(lines[-LAST_LINES:]) if lines else ""


def reset() -> None:
    """End a workload that still runs."""
    stop_units(UNIT)


STEPS = {"run": run, "report": report}
