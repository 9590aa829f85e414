"""The privileges of the lab's token, and the commands that grant them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from dasklab.machines.endpoint.privileges import ROLES, Need, account_lines, grant_lines, lacking, needed

# A pveum that refuses to add what exists and to change or grant what does not.
PVEUM = """#!/bin/bash
cd "$(dirname "$0")"
case "$1 $2" in
  "user token") kind=token verb=$3 name="$4!$5" rest="${*:6}" ;;
  "acl modify") kind=acl verb=modify name="$3" rest="${*:4}" ;;
  *) kind=$1 verb=$2 name=$3 rest="${*:4}" ;;
esac
file="$kind.$(echo "$name" | tr / _)"
if [ $kind = acl ]; then
  [ -e "role.${rest##* }" ] || { echo "role does not exist" >&2; exit 1; }
  echo "$rest" >> "$file"; sort -u -o "$file" "$file"; exit
fi
[ $verb = add ] && [ -e "$file" ] && { echo "$name already exists" >&2; exit 1; }
[ $verb = modify ] && [ ! -e "$file" ] && { echo "no such $kind" >&2; exit 1; }
echo "$rest" > "$file"
"""


def needs(**options: bool) -> list[Need]:
    return needed("dasklab", ["pve"], "local-lvm", "local", ["vmbr0", "vmbr1", "vmbr0"], **options)


def paste(lines: Iterable[str], node: Path) -> dict[str, str]:
    """Run commands on a node and return what it has afterwards. Each must succeed."""
    program = node / "pveum"
    program.write_text(PVEUM)
    program.chmod(0o755)
    for line in lines:
        process = subprocess.run(
            ["bash", "-c", line], env={"PATH": f"{node}:/usr/bin:/bin"}, capture_output=True, text=True
        )
        assert process.returncode == 0, (line, process.stderr)
    return {path.name: path.read_text() for path in node.iterdir() if path.name != "pveum"}


def test_commands_may_be_run_again(tmp_path: Path) -> None:
    lines = [*account_lines("lab@pve", "dasklab", "dasklab"), *grant_lines(needs(), "lab@pve", "dasklab")]
    first = paste(lines, tmp_path)
    assert paste(lines, tmp_path) == first
    assert {"user.lab@pve", "token.lab@pve!dasklab", "pool.dasklab", "acl._pool_dasklab"} <= set(first)


def test_granting_fewer_needs_later_keeps_the_roles(tmp_path: Path) -> None:
    disks, image = (need for need in needs() if need.path.startswith("/storage"))
    paste(grant_lines([disks], "lab@pve", "dasklab"), tmp_path)
    there = paste(grant_lines([image, disks], "lab@pve", "dasklab"), tmp_path)
    for need in (disks, image):
        granted = there[f"acl.{need.path.replace('/', '_')}"]
        assert granted == f"--users lab@pve --tokens lab@pve!dasklab --roles {need.role}\n"
        assert all(privilege in there[f"role.{need.role}"] for privilege in need.privileges)


def test_roles_are_created_before_they_are_granted() -> None:
    kinds = [line.split()[1] for line in grant_lines(needs(), "lab@pve", "dasklab")]
    assert kinds == sorted(kinds, key=["role", "acl"].index)


def test_own_zone_needs_no_privilege_on_other_zones() -> None:
    needs_of_two_nodes = needed(
        "dasklab", ["pve", "pve2"], "local", "local", ["vmbr0"], network=False, zone="dasklab"
    )
    lines = grant_lines(
        [need for need in needs_of_two_nodes if need.path.startswith("/sdn")], "lab@pve", "dasklab"
    )
    who = "--users lab@pve --tokens 'lab@pve!dasklab'"
    assert [line for line in lines if line.startswith("pveum acl")] == [
        f"pveum acl modify /sdn {who} --roles DaskLabApply --propagate 0",
        f"pveum acl modify /sdn/zones {who} --roles DaskLabApply --propagate 0",
        f"pveum acl modify /sdn/zones/dasklab {who} --roles DaskLabZone",
        f"pveum acl modify /sdn/zones/localnetwork/vmbr0 {who} --roles DaskLabBridge",
    ]
    assert {need.path for need in needs_of_two_nodes if need.role == "DaskLabNetwork"} == set()


def test_needs_are_limited_to_pool_storages_bridges_and_node() -> None:
    assert sorted({need.path for need in needs()}) == [
        "/nodes/pve",
        "/pool/dasklab",
        "/sdn/zones/localnetwork/vmbr0",
        "/sdn/zones/localnetwork/vmbr1",
        "/storage/local",
        "/storage/local-lvm",
    ]


# Three machines were created and destroyed on Proxmox VE 9.2 without these.
@pytest.mark.parametrize(
    "privilege", ["VM.GuestAgent", "VM.Monitor", "VM.Config.CDROM", "VM.Config.Cloudinit"]
)
def test_superfluous_privileges_are_not_needed(privilege: str) -> None:
    assert not [p for role in ROLES.values() for p in role if p.startswith(privilege)]


def test_every_privilege_has_a_purpose() -> None:
    assert all(reason for role in ROLES.values() for reason in role.values())


def test_removing_the_image_needs_a_privilege_on_its_storage() -> None:
    paths = {need.path for need in needs() if "Datastore.Allocate" in need.privileges}
    assert paths == {"/storage/local"}


@pytest.mark.parametrize(
    ("option", "privilege"), [("download", "Sys.AccessNetwork"), ("network", "Sys.Modify")]
)
def test_node_privileges_follow_from_options(option: str, privilege: str) -> None:
    def privileges_with(**options: bool) -> set[str]:
        return {p for need in needs(**options) for p in need.privileges}

    assert privilege in privileges_with()
    assert privilege not in privileges_with(**{option: False})


def test_granted_privileges_are_not_missing() -> None:
    need = Need("/storage/local", "DaskLabDisks")
    assert lacking(need, {"Datastore.AllocateSpace": 1, "Datastore.Audit": 0}) == []
    assert lacking(need, {"Datastore.Audit": 1}) == ["Datastore.AllocateSpace"]
