from __future__ import annotations

from lab.machines.privileges import missing, needed, pveum_lines


def needs(major: int = 9) -> dict[str, list[str]]:
    return needed("dasklab", "pve", ["local", "local"], ["vmbr0", "vmbr1"], major)


def test_each_version_is_asked_for_its_own_agent_privilege() -> None:
    assert "VM.Monitor" in needs(8)["/pool/dasklab"]
    assert "VM.Monitor" not in needs(9)["/pool/dasklab"]
    assert "VM.GuestAgent.Unrestricted" in needs(9)["/pool/dasklab"]


def test_nothing_is_asked_for_outside_pool_storage_bridges_and_node() -> None:
    assert sorted(needs()) == [
        "/nodes/pve",
        "/pool/dasklab",
        "/sdn/zones/localnetwork/vmbr0",
        "/sdn/zones/localnetwork/vmbr1",
        "/storage/local",
    ]


def test_what_is_granted_is_not_missing() -> None:
    granted = {path: dict.fromkeys(privileges, 1) for path, privileges in needs().items()}
    assert missing(needs(), granted) == {}
    del granted["/storage/local"]["Datastore.AllocateTemplate"]
    assert missing(needs(), granted) == {"/storage/local": ["Datastore.AllocateTemplate"]}


def test_the_lines_grant_user_and_token() -> None:
    assert pveum_lines({"/storage/local": ["Datastore.Audit"]}, "lab@pve", "dasklab") == [
        'pveum role add DaskLab0 --privs "Datastore.Audit"',
        "pveum acl modify /storage/local --users lab@pve --roles DaskLab0",
        "pveum acl modify /storage/local --tokens 'lab@pve!dasklab' --roles DaskLab0",
    ]
