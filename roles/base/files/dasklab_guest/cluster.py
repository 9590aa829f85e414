"""Start this host's part of a fresh Dask cluster, and stop it.

Role ``dask`` installs the services ``dask-scheduler`` or ``dask-worker``. What differs between trials is in
two files that the services read: Dask's own settings, and environment variables. A timer stops the service
after ``ttl_s``, whatever became of the caller.
"""

from __future__ import annotations

import json
import subprocess

from dasklab_guest.common import RUNTIME, HostError, is_active, run, start_timer, stop_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dasklab_guest.common import Document

SETTINGS = RUNTIME / "dask" / "trial.yaml"  # the folder is DASK_CONFIG of all processes; JSON is YAML
VARIABLES = RUNTIME / "cluster.env"  # an EnvironmentFile of systemd
TIMER = "dask-expire"


def start(
    settings: Mapping[str, Any], ttl_s: float, service: str = "", variables: Mapping[str, str] | None = None
) -> Document:
    """Start a fresh service. Returns at once: the workload waits for the workers.

    Args:
        settings: Dask's own settings, above those of the inventory.
        ttl_s: seconds until the service is stopped in any case.
        service: the service of this host; "" on the client and on hosts that do not take part.
        variables: environment variables of the service.
    """
    stop()
    SETTINGS.parent.mkdir(parents=True, exist_ok=True)
    SETTINGS.write_text(json.dumps(dict(settings)))
    lines = [f"{name}={json.dumps(value)}\n" for name, value in (variables or {}).items()]
    VARIABLES.write_text("".join(lines))
    if service:
        start_timer(TIMER, ttl_s, ["systemctl", "stop", service])
        run(["systemctl", "start", service])
    return {"service": service}


def stop() -> Document:
    """Stop this host's services.

    Raises:
        HostError: one is still active.
    """
    stop_units(f"{TIMER}.timer", "dask-scheduler", "dask-worker")
    for service in ("dask-scheduler", "dask-worker"):
        if is_active(service):
            raise HostError(f"{service} does not stop; see: journalctl -u {service}")
    return {}


def reset() -> None:
    """Stop the services, and forget that a killed one counts as failed."""
    stop()
    subprocess.run(["systemctl", "reset-failed", "dask-*"], capture_output=True, check=False)


STEPS = {"start": start, "stop": stop}
