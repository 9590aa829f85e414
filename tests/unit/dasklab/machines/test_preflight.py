"""What doctor says of an endpoint that lacks things, one after the other until nothing is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dasklab.errors import LabError
from dasklab.machines import preflight
from dasklab.machines.preflight import Finding, Requirements
from dasklab.machines.privileges import ROLES

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
WELL: dict[str, Any] = {
    "version": {"version": "9.2.11"},
    "nodes": [{"node": "pve"}, {"node": "other"}],
    "nodes/pve/network": [{"iface": "vmbr0", "type": "bridge", "active": 1}],
    "pools?poolid=dasklab": [{"poolid": "dasklab", "members": []}],
    "nodes/pve/storage": [{"storage": "local", "content": "images,import,iso"}],
    "nodes/pve/apt/versions": [{"Package": "ifupdown2", "CurrentState": "Installed"}],
    **GRANTED,
}


def looked(
    folder: Path, answers: dict[str, Any], required: Requirements = REQUIRED, **said: Any
) -> list[Finding]:
    """All findings of an endpoint that answers like this."""
    with serving(answers, folder) as fake:
        given = {"host": "127.0.0.1", "port": fake.port, "user": "lab@pve", "token_id": "dasklab"}
        given |= {"token_secret": "secret", "ca_file": fake.ca_file}
        return list(preflight.endpoint(required, given | said))


def bad(found: list[Finding]) -> Finding:
    """The one thing that is not well, told in one line."""
    (finding,) = (f for f in found if not f.ok)
    assert "\n" not in finding.text
    assert finding.fix
    return finding


def test_nothing_is_missing(tmp_path: Path) -> None:
    found = looked(tmp_path, WELL)
    assert [f for f in found if not f.ok] == []
    assert len(found) == 5


def test_a_pool_that_is_not_there(tmp_path: Path) -> None:
    answers = WELL | {"pools?poolid=dasklab": Status(500, "pool 'dasklab' does not exist")}
    finding = bad(looked(tmp_path, answers))
    assert finding.text == "pool dasklab does not exist"
    assert "pveum pool add dasklab" in finding.fix[1]


def test_rights_that_are_missing_are_told_with_what_needs_them_and_mended_in_one_block(
    tmp_path: Path,
) -> None:
    fewer = {f"access/permissions?path={path}": {} for path in ("/storage/local", "/nodes/pve")}
    finding = bad(looked(tmp_path, WELL | fewer))
    assert "Datastore.Allocate on /storage/local (DELETE content: destroy removes the image)" in finding.text
    assert finding.fix[0] == preflight.AS_ROOT
    kinds = [line.split()[1] for line in finding.fix[1:]]
    assert kinds == ["role"] * 5 + ["acl"] * 5


@pytest.mark.parametrize("packages", [[{"Package": "ifupdown2", "CurrentState": "ConfigFiles"}], []])
def test_a_node_that_cannot_apply_changes_of_its_network(packages: list[Any], tmp_path: Path) -> None:
    finding = bad(looked(tmp_path, WELL | {"nodes/pve/apt/versions": packages}))
    assert "node pve lacks ifupdown2" in finding.text
    assert "apt install ifupdown2" in finding.fix


def test_a_bridge_made_by_hand_needs_neither_rights_nor_reload(tmp_path: Path) -> None:
    network = [{"iface": "vmbr77", "type": "bridge", "comments": "mine", "active": 1}]
    role = ROLES["DaskLabDownload"]
    answers = WELL | {
        "nodes/pve/network": network,
        "nodes/pve/apt/versions": [],
        "access/permissions?path=/nodes/pve": {"/nodes/pve": dict.fromkeys(role, 1)},
    }
    assert [f for f in looked(tmp_path, answers) if not f.ok] == []


def test_a_storage_that_keeps_neither_is_mended_by_one_line(tmp_path: Path) -> None:
    finding = bad(looked(tmp_path, WELL | {"nodes/pve/storage": [{"storage": "local", "content": "iso"}]}))
    assert finding.text == "storage local of node pve does not allow images and import"
    assert finding.fix[1] == "pvesm set local --content images,import,iso"


def test_a_storage_that_one_does_not_see(tmp_path: Path) -> None:
    found = looked(tmp_path, WELL | {"nodes/pve/storage": [{"storage": "ceph", "content": "images"}]})
    told = [f.text for f in found if not f.ok]
    assert told == ["storage local of node pve does not exist, or this token may not see it; it sees ceph"]


def test_a_node_of_another_name_ends_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no node 'nodeone'; there are other, pve"):
        looked(tmp_path, WELL, Requirements(**{**vars(REQUIRED), "nodes": ("nodeone",)}))


@pytest.mark.parametrize("case", ["rejected", "no secret"])
def test_without_a_token_all_lines_from_nothing_are_told(case: str, tmp_path: Path) -> None:
    if case == "rejected":
        finding = bad(looked(tmp_path, {"version": Status(401, "Authentication failed!")}))
        assert "token lab@pve!dasklab: it is not accepted" in finding.text
    else:
        finding = bad(looked(tmp_path, {}, token_secret="", user=""))
        assert "PROXMOX_TOKEN_SECRET" in finding.text
        assert "PROXMOX_USER" in finding.text
    block = "\n".join(finding.fix)
    for line in ("pveum user add lab@pve", "pveum user token add lab@pve dasklab", "pveum pool add dasklab"):
        assert line in block
    for path in PATHS:
        assert f"pveum acl modify {path} " in block


def test_inside_doctor_nobody_is_sent_to_doctor() -> None:
    said = {"host": "127.0.0.1", "port": 1, "user": "lab@pve", "token_id": "t", "token_secret": "s"}
    finding = bad(list(preflight.endpoint(REQUIRED, said)))
    assert "doctor" not in f"{finding.text} {finding.fix}"


def test_a_right_that_is_missing_on_the_way_does_not_hide_the_lines(tmp_path: Path) -> None:
    answers = WELL | {
        "pools?poolid=dasklab": Status(403, "Permission check failed (/pool/dasklab, Pool.Audit)")
    }
    answers |= {"access/permissions?path=/pool/dasklab": {}}
    assert "VM.Allocate on /pool/dasklab" in bad(looked(tmp_path, answers)).text
