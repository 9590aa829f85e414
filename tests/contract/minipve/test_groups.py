"""Groups of users: members, permissions through a group, PVE's errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proxmoxer import ProxmoxAPI

from tests.contract.endpoint import Endpoint, refused

PASSWORD = "member-secret"


@pytest.fixture
def group(ours: Endpoint) -> Iterator[str]:
    """A group with the member ``member@pve``."""
    root = ours.root()
    root.access.groups.post(groupid="operators", comment="on call")
    root.access.users.post(userid="member@pve", password=PASSWORD, groups="operators")
    yield "operators"
    root.access.users("member@pve").delete()
    if any(row["groupid"] == "operators" for row in root.access.groups.get()):
        root.access.groups("operators").delete()


def member(endpoint: Endpoint) -> Any:
    return ProxmoxAPI(
        endpoint.host, port=endpoint.port, user="member@pve", password=PASSWORD, verify_ssl=endpoint.ca_file
    )


def test_group_lists_its_members(ours: Endpoint, group: str) -> None:
    groups = ours.root().access.groups
    assert groups.get() == [{"groupid": group, "users": "member@pve", "comment": "on call"}]
    assert groups(group).get() == {"members": ["member@pve"], "comment": "on call"}
    groups(group).put(comment="off duty")
    assert groups(group).get()["comment"] == "off duty"


def test_users_show_their_groups(ours: Endpoint, group: str) -> None:
    users = ours.root().access.users
    assert users("member@pve").get()["groups"] == [group]
    rows = {row["userid"]: row for row in users.get(full=1)}
    assert (rows["member@pve"]["groups"], rows["root@pam"]["groups"]) == (group, "")
    assert "groups" not in users.get()[0]


def test_groups_of_a_user_are_replaced_or_appended(ours: Endpoint, group: str) -> None:
    root = ours.root()
    root.access.groups.post(groupid="second")
    user = root.access.users("member@pve")
    user.put(groups="second", append=1)
    assert user.get()["groups"] == [group, "second"]
    user.put(groups="second")
    assert user.get()["groups"] == ["second"]
    user.put(comment="groups stay")
    assert user.get()["groups"] == ["second"]
    root.access.groups("second").delete()
    assert user.get()["groups"] == []


def test_unknown_groups_are_refused_and_nothing_changes(ours: Endpoint, group: str) -> None:
    root = ours.root()
    error = refused(root.access.users.post, userid="late@pve", groups="nosuch")
    assert error.content == "create user failed: no such group 'nosuch'"
    assert "late@pve" not in [row["userid"] for row in root.access.users.get()]
    error = refused(root.access.users("member@pve").put, groups="nosuch")
    assert error.content == "update user failed: no such group 'nosuch'"
    assert root.access.users("member@pve").get()["groups"] == [group]
    error = refused(root.access.acl.put, path="/vms", roles="PVEAuditor", groups="nosuch")
    assert error.content == "ACL update failed: group 'nosuch' does not exist"


def test_errors_name_the_operation(ours: Endpoint, group: str) -> None:
    groups = ours.root().access.groups
    assert refused(groups.post, groupid=group).content == (
        f"create group failed: group '{group}' already exists"
    )
    assert refused(groups("nosuch").get).content == "group 'nosuch' does not exist"
    assert refused(groups("nosuch").put, comment="x").content == (
        "update group failed: group 'nosuch' does not exist"
    )
    assert refused(groups("nosuch").delete).content == "delete group failed: group 'nosuch' does not exist"


def test_members_have_the_privileges_of_their_group(ours: Endpoint, group: str) -> None:
    root, api = ours.root(), member(ours)
    root.access.acl.put(path="/vms", roles="PVEAuditor", groups=group)
    entry = {"path": "/vms", "roleid": "PVEAuditor", "ugid": group, "type": "group", "propagate": 1}
    assert entry in root.access.acl.get()
    assert api.access.permissions.get(path="/vms/100")["/vms/100"]["VM.Audit"] == 1
    root.access.acl.put(path="/vms", roles="NoAccess", users="member@pve")  # own entries replace the group's
    assert api.access.permissions.get(path="/vms/100")["/vms/100"] == {}
    root.access.acl.put(path="/vms", roles="NoAccess", users="member@pve", delete=1)
    root.access.groups(group).delete()
    assert api.access.permissions.get(path="/vms/100")["/vms/100"] == {}
    assert entry not in root.access.acl.get()


def test_acl_needs_somebody(ours: Endpoint) -> None:
    error = refused(ours.root().access.acl.put, path="/vms", roles="PVEAuditor")
    text = "either 'users', 'groups' or 'tokens' is required."
    assert error.errors == dict.fromkeys(("users", "groups", "tokens"), text)


def test_manager_of_a_group_manages_only_its_users(ours: Endpoint, group: str) -> None:
    root, api = ours.root(), member(ours)
    root.access.users.post(userid="other@pve", password="other-secret")
    assert [row["userid"] for row in api.access.users.get()] == ["member@pve"]
    root.access.acl.put(path=f"/access/groups/{group}", roles="PVEUserAdmin", users="member@pve")
    root.access.acl.put(path="/access/realm/pve", roles="PVEUserAdmin", users="member@pve")
    api.access.users.post(userid="new@pve", groups=group)
    assert {row["userid"] for row in api.access.users.get()} == {"member@pve", "new@pve"}
    error = refused(api.access.users.post, userid="free@pve")
    assert error.content == "Permission check failed (/access/groups, User.Modify)"
    assert refused(api.access.users("other@pve").put, comment="x").status_code == 403
    for userid in ("new@pve", "other@pve"):
        root.access.users(userid).delete()
