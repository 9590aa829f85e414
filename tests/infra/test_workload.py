"""Role workload: the scripts that compute on the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from dasklab import workloads
from dasklab.paths import SHARE as ROOT

testinfra_hosts = ["ansible://dask_client"]
FOLDER = "/opt/dasklab/workloads"


def test_workloads_are_the_controller_s(host: Any, requested: dict[str, Any]) -> None:
    """Ansible itself finds nothing to copy."""
    source = requested.get("workload_source", workloads.__path__[0])
    for path in sorted(ROOT.joinpath(source).glob("*.py")):
        assert host.file(f"{FOLDER}/{path.name}").content == path.read_bytes(), path.name
    arguments = f"src={source}/_harness.py dest={FOLDER}/ mode=0644"
    assert not host.ansible("ansible.builtin.copy", arguments)["changed"]


@pytest.mark.parametrize("folder", ["model/settings", "records", "records/recorder"])
def test_recorder_is_installed(host: Any, folder: str) -> None:
    assert host.file(f"{FOLDER}/dasklab/{folder}").is_directory
