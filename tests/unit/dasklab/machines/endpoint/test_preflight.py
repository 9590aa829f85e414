"""Findings about endpoints that lack something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines.endpoint import preflight
from dasklab.machines.endpoint.preflight import Finding, Requirements
from dasklab.machines.endpoint.privileges import ROLES

from tests.unit.dasklab.machines.fake_pve import Status, serving

REQUIRED = Requirements(
    lab="dasklab",
    pool="dasklab",
    nodes=("pve",),
    storage="local",
    image_storage="local",
    download=True,
    own_bridge="vmbr77",
    bridges=frozenset({"vmbr0", "vmbr77"}),
)
PATHS = {
    "/nodes/pve": ("DaskLabDownload", "DaskLabNetwork", "DaskLabLook"),
    "/pool/dasklab": ("DaskLabMachines",),
    "/sdn/zones/localnetwork/vmbr0": ("DaskLabBridge",),
    "/sdn/zones/localnetwork/vmbr77": ("DaskLabBridge",),
    "/storage/local": ("DaskLabDisks", "DaskLabImage"),
}
GRANTED = {
    f"access/permissions?path={path}": {path: {p: 1 for role in roles for p in ROLES[role]}}
    for path, roles in PATHS.items()
}
COMPLETE: dict[str, Any] = {
    "version": {"version": "9.2.11"},
    "nodes": [{"node": "pve"}, {"node": "other"}],
    "nodes/pve/network": [{"iface": "vmbr0", "type": "bridge", "active": 1}],
    "pools?poolid=dasklab": [{"poolid": "dasklab", "members": []}],
    "nodes/pve/storage": [{"storage": "local", "content": "images,import,iso"}],
    "nodes/pve/apt/versions": [{"Package": "ifupdown2", "CurrentState": "Installed"}],
    **GRANTED,
}


def check(
    folder: Path, answers: dict[str, Any], required: Requirements = REQUIRED, **changes: Any
) -> list[Finding]:
    """Return all findings about an endpoint with these answers."""
    with serving(answers, folder) as fake:
        settings = {"host": "127.0.0.1", "port": fake.port, "user": "lab@pve", "token_id": "dasklab"}
        settings |= {"token_secret": "secret", "ca_file": fake.ca_file}
        return list(preflight.endpoint(required, settings | changes))


def problem(findings: list[Finding]) -> Finding:
    """Return the only problem; it is one line of text."""
    (finding,) = (f for f in findings if not f.ok)
    assert "\n" not in finding.text
    assert finding.fix
    return finding


def test_complete_endpoint_has_no_problems(tmp_path: Path) -> None:
    findings = check(tmp_path, COMPLETE)
    assert [f for f in findings if not f.ok] == []
    assert len(findings) == 5


def test_missing_pool_is_reported(tmp_path: Path) -> None:
    answers = COMPLETE | {"pools?poolid=dasklab": Status(500, "pool 'dasklab' does not exist")}
    finding = problem(check(tmp_path, answers))
    assert finding.text == "pool dasklab does not exist"
    assert "pveum pool add dasklab" in finding.fix[1]


def test_missing_privileges_are_reported_with_their_purpose(
    tmp_path: Path,
) -> None:
    fewer = {f"access/permissions?path={path}": {} for path in ("/storage/local", "/nodes/pve")}
    finding = problem(check(tmp_path, COMPLETE | fewer))
    assert "Datastore.Allocate on /storage/local (DELETE content: destroy removes the image)" in finding.text
    assert finding.fix[0] == preflight.AS_ROOT
    kinds = [line.split()[1] for line in finding.fix[1:]]
    assert kinds == ["role"] * 5 + ["acl"] * 5


@pytest.mark.parametrize("version", ["3.0.0-1.3", "3.3.0-1+pmx11", "3.1.0-1+pve1"])
def test_ifupdown2_of_debian_is_reported(version: str, tmp_path: Path) -> None:
    row = {"Package": "ifupdown2", "CurrentState": "Installed", "OldVersion": version, "Version": "9+pmx9"}
    findings = check(tmp_path, COMPLETE | {"nodes/pve/apt/versions": [row]})
    if "+" in version:
        assert [f for f in findings if not f.ok] == []
    else:
        assert "node pve has Debian's ifupdown2 3.0.0-1.3" in problem(findings).text


@pytest.mark.parametrize("quorate", [0, 1])
def test_quorum_is_checked_where_the_token_may_look(quorate: int, tmp_path: Path) -> None:
    cluster = {"type": "cluster", "name": "home", "quorate": quorate}
    nodes = [{"type": "node", "name": "pve", "online": 1}, {"type": "node", "name": "pve2", "online": 0}]
    findings = check(tmp_path, COMPLETE | {"cluster/status": [cluster, *nodes]})
    [finding] = [f for f in findings if "quorum" in f.text]
    assert finding.ok == bool(quorate)
    assert "(offline: pve2)" in finding.text


def test_containers_need_fewer_privileges(tmp_path: Path) -> None:
    required = Requirements(**{**vars(REQUIRED), "kinds": frozenset({"container"}), "download": False})
    without = {p: 1 for p in ROLES["DaskLabMachines"] if p not in ("VM.Clone", "VM.Config.HWType")}
    node = {p: 1 for role in ("DaskLabNetwork", "DaskLabLook") for p in ROLES[role]}
    answers = COMPLETE | {
        "nodes/pve/storage": [{"storage": "local", "content": "rootdir,vztmpl"}],
        "access/permissions?path=/pool/dasklab": {"/pool/dasklab": without},
        "access/permissions?path=/nodes/pve": {"/nodes/pve": node},
    }
    assert [f for f in check(tmp_path, answers, required) if not f.ok] == []
    assert (
        "VM.Clone"
        in problem(check(tmp_path, answers | {"nodes/pve/storage": COMPLETE["nodes/pve/storage"]})).text
    )


def test_full_token_id_gives_valid_lines(tmp_path: Path) -> None:
    finding = problem(check(tmp_path, {}, token_secret="", user="lab@pve", token_id="lab@pve!dasklab"))
    assert any("pveum user token add lab@pve dasklab " in line for line in finding.fix)
    assert not any("!lab@pve" in line for line in finding.fix)


def test_storage_with_a_space_is_quoted(tmp_path: Path) -> None:
    required = Requirements(**{**vars(REQUIRED), "storage": "local lvm"})
    answers = COMPLETE | {"access/permissions?path=/storage/local lvm": {}}
    answers["nodes/pve/storage"] = [
        *COMPLETE["nodes/pve/storage"],
        {"storage": "local lvm", "content": "iso"},
    ]
    lines = [line for f in check(tmp_path, answers, required) for line in f.fix]
    assert any(line.startswith("pveum acl modify '/storage/local lvm' ") for line in lines)
    assert any(line.startswith("pvesm set 'local lvm' --content") for line in lines)


@pytest.mark.parametrize("packages", [[{"Package": "ifupdown2", "CurrentState": "ConfigFiles"}], []])
def test_missing_ifupdown2_is_reported(packages: list[Any], tmp_path: Path) -> None:
    finding = problem(check(tmp_path, COMPLETE | {"nodes/pve/apt/versions": packages}))
    assert "node pve lacks ifupdown2" in finding.text
    assert "apt install ifupdown2" in finding.fix


def test_bridge_made_by_hand_needs_no_network_privileges(tmp_path: Path) -> None:
    network = [{"iface": "vmbr77", "type": "bridge", "comments": "mine", "active": 1}]
    role = ROLES["DaskLabDownload"]
    answers = COMPLETE | {
        "nodes/pve/network": network,
        "nodes/pve/apt/versions": [],
        "access/permissions?path=/nodes/pve": {"/nodes/pve": dict.fromkeys(role, 1)},
    }
    assert [f for f in check(tmp_path, answers) if not f.ok] == []


def test_storage_without_the_content_is_reported_with_one_command(tmp_path: Path) -> None:
    finding = problem(
        check(tmp_path, COMPLETE | {"nodes/pve/storage": [{"storage": "local", "content": "iso"}]})
    )
    assert finding.text == "storage local of node pve does not allow images and import"
    assert finding.fix[1] == "pvesm set local --content images,import,iso"


def test_invisible_storage_is_reported(tmp_path: Path) -> None:
    findings = check(tmp_path, COMPLETE | {"nodes/pve/storage": [{"storage": "ceph", "content": "images"}]})
    assert [f.text for f in findings if not f.ok] == [
        "storage local of node pve does not exist, or this token may not see it; it sees ceph"
    ]


def test_unknown_node_lists_the_existing_nodes(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no node 'nodeone'; there are other, pve"):
        check(tmp_path, COMPLETE, Requirements(**{**vars(REQUIRED), "nodes": ("nodeone",)}))


@pytest.mark.parametrize("case", ["rejected", "no secret"])
def test_without_a_token_all_commands_are_printed(case: str, tmp_path: Path) -> None:
    if case == "rejected":
        finding = problem(check(tmp_path, {"version": Status(401, "Authentication failed!")}))
        assert "token lab@pve!dasklab: it is not accepted" in finding.text
    else:
        finding = problem(check(tmp_path, {}, token_secret="", user=""))
        assert "PROXMOX_TOKEN_SECRET" in finding.text
        assert "PROXMOX_USER" in finding.text
    block = "\n".join(finding.fix)
    for line in ("pveum user add lab@pve", "pveum user token add lab@pve dasklab", "pveum pool add dasklab"):
        assert line in block
    for path in PATHS:
        assert f"pveum acl modify {path} " in block


def test_findings_do_not_refer_to_doctor() -> None:
    settings = {"host": "127.0.0.1", "port": 1, "user": "lab@pve", "token_id": "t", "token_secret": "s"}
    finding = problem(list(preflight.endpoint(REQUIRED, settings)))
    assert "doctor" not in f"{finding.text} {finding.fix}"


def test_refused_look_at_the_pool_does_not_hide_missing_privileges(tmp_path: Path) -> None:
    answers = COMPLETE | {
        "pools?poolid=dasklab": Status(403, "Permission check failed (/pool/dasklab, Pool.Audit)")
    }
    answers |= {"access/permissions?path=/pool/dasklab": {}}
    assert "VM.Allocate on /pool/dasklab" in problem(check(tmp_path, answers)).text
