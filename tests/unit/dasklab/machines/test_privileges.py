"""What the token is given, and that the lines which give it may be pasted again and again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from dasklab.machines.privileges import ROLES, Need, account_lines, grant_lines, lacking, needed

# pveum as far as it matters: what is there cannot be added, what is not there cannot be changed or granted.
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
    """What a node has after the lines; each must succeed."""
    program = node / "pveum"
    program.write_text(PVEUM)
    program.chmod(0o755)
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line], env={"PATH": f"{node}:/usr/bin:/bin"}, capture_output=True, text=True
        )
        assert done.returncode == 0, (line, done.stderr)
    return {path.name: path.read_text() for path in node.iterdir() if path.name != "pveum"}


def test_the_lines_may_be_pasted_again(tmp_path: Path) -> None:
    lines = [*account_lines("lab@pve", "dasklab", "dasklab"), *grant_lines(needs(), "lab@pve", "dasklab")]
    first = paste(lines, tmp_path)
    assert paste(lines, tmp_path) == first
    assert {"user.lab@pve", "token.lab@pve!dasklab", "pool.dasklab", "acl._pool_dasklab"} <= set(first)


def test_what_a_first_look_did_not_miss_does_not_upset_the_second(tmp_path: Path) -> None:
    disks, image = (need for need in needs() if need.path.startswith("/storage"))
    paste(grant_lines([disks], "lab@pve", "dasklab"), tmp_path)
    there = paste(grant_lines([image, disks], "lab@pve", "dasklab"), tmp_path)
    for need in (disks, image):
        granted = there[f"acl.{need.path.replace('/', '_')}"]
        assert granted == f"--users lab@pve --tokens lab@pve!dasklab --roles {need.role}\n"
        assert all(privilege in there[f"role.{need.role}"] for privilege in need.privileges)


def test_roles_come_before_the_lines_that_give_them() -> None:
    kinds = [line.split()[1] for line in grant_lines(needs(), "lab@pve", "dasklab")]
    assert kinds == sorted(kinds, key=["role", "acl"].index)


def test_a_zone_of_the_labs_own_takes_no_right_on_any_other() -> None:
    asked = needed("dasklab", ["pve", "pve2"], "local", "local", ["vmbr0"], network=False, zone="dasklab")
    lines = grant_lines([need for need in asked if need.path.startswith("/sdn")], "lab@pve", "dasklab")
    who = "--users lab@pve --tokens 'lab@pve!dasklab'"
    assert [line for line in lines if line.startswith("pveum acl")] == [
        f"pveum acl modify /sdn {who} --roles DaskLabApply --propagate 0",
        f"pveum acl modify /sdn/zones {who} --roles DaskLabApply --propagate 0",
        f"pveum acl modify /sdn/zones/dasklab {who} --roles DaskLabZone",
        f"pveum acl modify /sdn/zones/localnetwork/vmbr0 {who} --roles DaskLabBridge",
    ]
    assert {need.path for need in asked if need.role == "DaskLabNetwork"} == set()


def test_nothing_is_asked_for_outside_pool_storages_bridges_and_node() -> None:
    assert sorted({need.path for need in needs()}) == [
        "/nodes/pve",
        "/pool/dasklab",
        "/sdn/zones/localnetwork/vmbr0",
        "/sdn/zones/localnetwork/vmbr1",
        "/storage/local",
        "/storage/local-lvm",
    ]


# Three machines were made and destroyed on Proxmox VE 9.2 without these.
@pytest.mark.parametrize(
    "privilege", ["VM.GuestAgent", "VM.Monitor", "VM.Config.CDROM", "VM.Config.Cloudinit"]
)
def test_no_right_is_asked_for_that_nothing_needs(privilege: str) -> None:
    assert not [p for role in ROLES.values() for p in role if p.startswith(privilege)]


def test_every_right_says_what_needs_it() -> None:
    assert all(reason for role in ROLES.values() for reason in role.values())


def test_removing_the_image_takes_a_right_of_its_own_where_the_image_is() -> None:
    asked = {need.path for need in needs() if "Datastore.Allocate" in need.privileges}
    assert asked == {"/storage/local"}


@pytest.mark.parametrize(
    ("option", "privilege"), [("download", "Sys.AccessNetwork"), ("network", "Sys.Modify")]
)
def test_the_node_is_only_touched_where_it_has_to_be(option: str, privilege: str) -> None:
    def asked(**options: bool) -> set[str]:
        return {p for need in needs(**options) for p in need.privileges}

    assert privilege in asked()
    assert privilege not in asked(**{option: False})


def test_what_is_granted_is_not_missing() -> None:
    need = Need("/storage/local", "DaskLabDisks")
    assert lacking(need, {"Datastore.AllocateSpace": 1, "Datastore.Audit": 0}) == []
    assert lacking(need, {"Datastore.Audit": 1}) == ["Datastore.AllocateSpace"]
