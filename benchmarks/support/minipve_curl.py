"""Requests to a minipve endpoint with curl, for benchmarks/minipve_clients.py."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from typing import Any


def request(variables: Mapping[str, str], path: str, *words: str, **values: str) -> Any:
    """Send a request, and return the data of the answer. With ``values`` or a form it is a POST.

    Args:
        variables: those of ``minipve env``.
        path: below ``/api2/json``.
        words: additional options of curl.
        values: the parameters.
    """
    header = f"Authorization: PVEAPIToken={variables['PROXMOX_VE_API_TOKEN']}"
    trust = ["--cacert", variables["PROXMOX_CA_FILE"], "--header", header]
    data = [word for name, value in values.items() for word in ("--data-urlencode", f"{name}={value}")]
    url = f"{variables['PROXMOX_URL']}/api2/json{path}"
    command = ["curl", "--silent", "--show-error", "--fail-with-body", *trust, *words, *data, url]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["data"]


def finish(variables: Mapping[str, str], upid: str) -> None:
    """Wait for a task, which must succeed."""
    while (status := request(variables, f"/nodes/pve/tasks/{upid}/status"))["status"] == "running":
        time.sleep(0.2)
    if status["exitstatus"] != "OK":
        raise RuntimeError(f"{upid}: {status['exitstatus']}")
