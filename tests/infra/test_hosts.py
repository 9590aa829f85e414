"""Each host is as inventory and roles describe it. Runs on provisioned hosts: see conftest.py."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dasklab.model.settings.nic import DRIVERS, LAB_SLOT
from dasklab.paths import SHARE as ROOT

from tests.infra.conftest import GUEST, Lab, raw

PINS = ROOT / "roles" / "dask" / "files" / "requirements.txt"


def test_packages_have_the_pinned_versions(lab: Lab) -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", PINS.read_text(), re.MULTILINE))
    installed = lab.answers["describe"]["versions"]
    assert {name: installed.get(name) for name in pins} == pins


def test_services_are_installed_and_wait_for_a_trial(lab: Lab) -> None:
    units = {}
    for block in lab.answers["units"].split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.strip().splitlines())
        units[unit["Id"]] = unit
    names = {"scheduler": "dask-scheduler.service", "worker": "dask-worker.service"}
    for role, name in names.items():
        expected = "loaded" if lab.requested("dask_role") == role else "not-found"
        assert units[name]["LoadState"] == expected
        assert units[name]["ActiveState"] == "inactive"
        assert units[name]["LoadState"] == "not-found" or units[name]["TimeoutStopUSec"] == "3s"
    assert units["dasklab-host.service"]["UnitFileState"] == "enabled"
    assert [name for name, unit in units.items() if unit["NeedDaemonReload"] != "no"] == []


def test_ssh_accepts_no_passwords(lab: Lab) -> None:
    settings = dict(line.split(" ", 1) for line in lab.answers["sshd"].splitlines())
    assert settings["passwordauthentication"] == "no"
    assert settings["kbdinteractiveauthentication"] == "no"
    assert settings["permitrootlogin"] in ("no", "without-password", "prohibit-password")


def test_lab_link_has_the_driver_of_its_nic_model(lab: Lab) -> None:
    link = lab.answers["describe"]["lab"]
    assert link["up"]
    if lab.guest is not None:
        nic = lab.guest.nics[LAB_SLOT]
        assert link["driver"] in DRIVERS[nic.model]
        assert link["mac"].upper() == nic.mac.upper()


def test_interfaces_and_kernel_settings_are_as_requested(lab: Lab) -> None:
    """A container cannot see some kernel settings of its node."""
    assert lab.answers["apply"]["changes"] == []
    unsupported = lab.answers["apply"]["unsupported"]
    assert [name for name in unsupported if not (lab.is_container and name.startswith("/proc/sys/"))] == []


def test_clock_agrees_with_the_controllers(lab: Lab) -> None:
    assert lab.start_s - 5 < lab.answers["describe"]["time"] < lab.stop_s + 5


def test_host_at_rest_has_no_impairment_capture_or_probe(lab: Lab) -> None:
    rest = lab.answers["at_rest"]
    assert rest["requested"] == []
    assert not [q for q in rest["qdiscs"] if q["kind"] in ("netem", "prio", "clsact", "ingress", "tbf")]
    assert lab.answers["timers"].strip() == ""
    assert lab.answers["leftovers"].strip() == ""


def test_netem_is_applied_and_cleared(lab: Lab) -> None:
    unsupported = lab.answers["impaired"].get("unsupported")
    if unsupported and lab.is_container:
        pytest.skip(f"this node's kernel: {unsupported}")
    [link] = lab.answers["impaired"]["configured"]
    assert (link["delay_ms"], link["loss_pct"], link["direction"]) == (5, 1, "egress")
    assert 0 < lab.answers["impaired"]["expires_in_s"] <= 60
    assert lab.answers["cleared"]["requested"] == []
    assert not [q for q in lab.answers["cleared"]["qdiscs"] if q["kind"] in ("netem", "tbf", "clsact")]


def test_rate_is_limited_by_a_shaper_or_a_policer(lab: Lab) -> None:
    """If the node's kernel has no policers, its containers use a token bucket without a queue."""
    shaped, [policed] = (lab.answers[key]["configured"] for key in ("shaped", "policed"))
    assert [(link["by"], link["policer"], link["rate_mbit"]) for link in shaped] == [("tbf", False, 100)] * 2
    assert policed["by"] in ({"police", "tbf"} if lab.is_container else {"police"})
    assert (policed["policer"], policed["rate_mbit"]) == (True, 100)


def test_only_the_client_captures_and_is_promiscuous_only_meanwhile(lab: Lab, host: Any) -> None:
    if lab.requested("dask_role") != "client":
        assert lab.answers["describe"]["capture"] is None
        return
    before = lab.answers["describe"]["capture"]
    assert before["up"]
    assert before["promiscuity"] == 0
    request = json.dumps({"ttl_s": 60, "buffer_mib": 4, "file_max_mb": 10})
    command = (
        f"{GUEST} capture start '{request}' >/dev/null && {GUEST} capture stop"
        f" && echo @@ && {GUEST} host counters"
    )
    report, after = (json.loads(answer) for answer in raw(host, command).split("@@"))
    assert report["promiscuity"] >= 1
    assert report["frames"] is not None
    assert report["dropped_kernel"] == report["dropped_interface"] == 0
    assert after["capture"]["promiscuity"] == 0


def test_bridge_belongs_to_the_lab_and_is_at_rest(lab: Lab, node: Any) -> None:
    bridge = lab.requested("lab_bridge")
    command = f"ip -d -j link show dev {bridge}; ip -d -j link show master {bridge}"
    [link], ports = map(json.loads, node.check_output(command).splitlines())
    assert link["linkinfo"]["info_kind"] == "bridge"
    mode = lab.inventory.optional(node.backend.host, "proxmox_bridge_mode") or "flooding"
    assert link["linkinfo"]["info_data"]["ageing_time"] == {"flooding": 0, "learning": 30000}[mode]
    assert {port.get("linkinfo", {}).get("info_kind") for port in ports} <= {"tun", "veth"}
