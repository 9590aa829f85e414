"""Permissions: the lab's least-privilege token, and PVE's errors when a privilege is missing."""

from __future__ import annotations

import time
from typing import Any

import pytest
from dasklab.machines.endpoint import privileges
from minipve.access.accounts import Access
from minipve.access.tickets import LIFETIME_S, Tickets
from proxmoxer import ProxmoxAPI
from proxmoxer.core import AuthenticationError

from tests.contract.endpoint import Endpoint, refused


def test_token_has_all_privileges_that_the_lab_needs(
    endpoint: Endpoint, real: bool, disks: str, imports: str
) -> None:
    """On a real node: with a local image, so that the node need not download one."""
    get = endpoint.api().access.permissions.get
    place = endpoint.pool, [endpoint.node], disks, imports, [endpoint.bridge]
    for need in privileges.needed(*place, download=not real):
        assert privileges.lacking(need, get(path=need.path)[need.path]) == [], need


def test_token_has_no_other_privileges(ours: Endpoint) -> None:
    everything = ours.api().access.permissions.get()
    assert "/" not in everything
    assert "/access" not in everything
    error = refused(ours.api().access.permissions.get, userid="root@pam")
    assert error.content == "Permission check failed (/access, Sys.Audit)"


def test_token_cannot_create_vms_outside_its_pool(endpoint: Endpoint, vmid: int) -> None:
    error = refused(endpoint.api().nodes(endpoint.node).qemu.post, vmid=vmid)
    assert (error.status_code, error.content) == (403, "Permission check failed")


def test_tags_at_creation_need_a_privilege_on_the_vm(endpoint: Endpoint, vmid: int) -> None:
    upid = endpoint.api().nodes(endpoint.node).qemu.post(vmid=vmid, pool=endpoint.pool, tags="a", memory=32)
    text = f"unable to create VM {vmid} - 403 Permission check failed (/vms/{vmid}, VM.Config.Options)"
    assert endpoint.failed(upid) == text
    assert refused(endpoint.vm(vmid).config.get).status_code == 403


def test_bridge_needs_sdn_use(endpoint: Endpoint, vmid: int) -> None:
    other = f"{endpoint.bridge}x"
    path = f"/sdn/zones/localnetwork/{other}"
    if "SDN.Use" in endpoint.api().access.permissions.get(path=path)[path]:
        pytest.skip(f"the token may use every bridge, even {other}")
    post = endpoint.api().nodes(endpoint.node).qemu.post
    error = refused(post, vmid=vmid, pool=endpoint.pool, net0=f"virtio,bridge={other}")
    assert error.content == f"Permission check failed ({path}, SDN.Use)"
    error = refused(post, vmid=vmid, pool=endpoint.pool, net0=f"virtio,bridge={other},tag=7")
    assert error.content == f"Permission check failed ({path}/7, SDN.Use)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"args": "-foo"}, "only root can set 'args' config"),
        ({"startup": "order=1"}, "Permission check failed (/, Sys.Modify)"),
        ({"serial0": "/dev/ttyS0"}, "only root can set 'serial0' config for real devices"),
        ({"vmgenid": "1"}, "only root can set 'vmgenid' config"),
        ({"hugepages": "any"}, "only root can set 'hugepages' config"),
        ({"lock": "create"}, "only root can set 'lock' config"),
    ],
)
def test_root_only_options(endpoint: Endpoint, vmid: int, options: dict[str, Any], message: str) -> None:
    error = refused(endpoint.api().nodes(endpoint.node).qemu.post, vmid=vmid, pool=endpoint.pool, **options)
    assert error.content == message


def test_root_only_changes(endpoint: Endpoint, vmid: int, disks: str) -> None:
    endpoint.create(vmid)
    put = endpoint.vm(vmid).config.put
    error = refused(put, serial1="/dev/ttyS1")
    assert error.content == "only root can modify 'serial1' config for real devices"
    for volid, complaint in (
        (f"{disks}:snippets/nosuch.sh", f"script '{disks}:snippets/nosuch.sh' does not exist\n"),
        (f"{disks}:iso/x.iso", f"'{disks}:iso/x.iso' is not in the snippets directory\n"),
    ):
        assert refused(put, hookscript=volid).errors == {"hookscript": complaint}


def test_hookscript_must_be_executable(ours: Endpoint, vmid: int) -> None:
    assert ours.state is not None
    ours.create(vmid)
    script = ours.state / "storage/snippets/hook.sh"
    script.write_text("#!/bin/sh\n")
    complaint = "script 'local:snippets/hook.sh' is not executable\n"
    error = refused(ours.vm(vmid).config.put, hookscript="local:snippets/hook.sh")
    assert (error.status_code, error.errors) == (400, {"hookscript": complaint})
    script.chmod(0o755)
    error = refused(ours.vm(vmid).config.put, hookscript="local:snippets/hook.sh")
    assert (error.status_code, error.content) == (500, "only root can set 'hookscript' config")
    script.unlink()


def test_unknown_pool_is_answered_with_403(ours: Endpoint, vmid: int) -> None:
    text = "Permission check failed (pool 'nosuch' does not exist)"
    error = refused(ours.api().nodes(ours.node).qemu.post, vmid=vmid, pool="nosuch")
    assert (error.status_code, error.content) == (403, text)
    ours.create(vmid)
    error = refused(ours.root().nodes(ours.node).qemu(vmid).clone.post, newid=vmid + 1, pool="nosuch")
    assert (error.status_code, error.content) == (403, text)


def test_role_errors_name_the_operation(ours: Endpoint) -> None:
    roles = ours.root().access.roles
    roles.post(roleid="Twice", privs="VM.Audit")
    assert refused(roles.post, roleid="Twice").content == "create role failed: role 'Twice' already exists"
    roles("Twice").delete()
    assert refused(roles("Twice").delete).content == "delete role failed: role 'Twice' does not exist"
    assert refused(roles("Twice").put, privs="").content == "update role failed: role 'Twice' does not exist"
    reserved = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace"
    assert refused(roles.post, roleid="pveMine").errors == {"roleid": reserved}
    error = refused(ours.root().access.acl.put, path="/vms", roles="Nosuch", users="root@pam")
    assert error.content == "ACL update failed: role 'Nosuch' does not exist"


class Actor:
    """A user with exactly the privileges that a test grants."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.root = endpoint, endpoint.root()
        self.root.access.users.post(userid="actor@pve", password="actor-secret")
        self.root.access.roles.post(roleid="Acting", privs="")

    def allow(self, path: str, *privs: str, propagate: int = 1) -> None:
        self.root.access.roles("Acting").put(privs=",".join(privs))
        self.root.access.acl.put(path=path, users="actor@pve", roles="Acting", propagate=propagate)

    def api(self) -> Any:
        e = self.endpoint
        return ProxmoxAPI(
            e.host, port=e.port, user="actor@pve", password="actor-secret", verify_ssl=e.ca_file
        )

    def remove(self) -> None:
        self.root.access.users("actor@pve").delete()
        self.root.access.roles("Acting").delete()


@pytest.fixture
def actor(ours: Endpoint) -> Any:
    made = Actor(ours)
    yield made
    made.remove()


def test_error_names_the_first_missing_privilege(actor: Actor, vmid: int) -> None:
    actor.endpoint.create(vmid)
    vm = actor.api().nodes(actor.endpoint.node).qemu(vmid)
    assert refused(vm.config.get).content == f"Permission check failed (/vms/{vmid}, VM.Audit)"
    options = (
        "VM.Config.Disk|VM.Config.CDROM|VM.Config.CPU|VM.Config.Memory|VM.Config.Network|VM.Config.HWType"
    )
    text = f"Permission check failed (/vms/{vmid}, {options}|VM.Config.Options|VM.Config.Cloudinit)"
    assert refused(vm.config.put, cores=2).content == text
    actor.allow(f"/vms/{vmid}", "VM.Audit", "VM.Config.CPU")
    vm.config.put(cores=2)
    assert vm.config.get()["cores"] == 2
    assert (
        refused(vm.config.put, memory=64).content
        == f"Permission check failed (/vms/{vmid}, VM.Config.Memory)"
    )
    text = f"Permission check failed (/vms/{vmid}, VM.Config.Cloudinit|VM.Config.Network)"
    assert refused(vm.config.put, ciuser="x").content == text
    assert refused(vm.status.start.post).content == f"Permission check failed (/vms/{vmid}, VM.PowerMgmt)"


def test_storage_configuration_needs_datastore_allocate(actor: Actor) -> None:
    actor.allow("/storage/local", "Datastore.Audit", "Datastore.AllocateSpace")
    error = refused(actor.api().storage("local").get)
    assert error.content == "Permission check failed (/storage/local, Datastore.Allocate)"


def test_callers_cannot_grant_more_than_they_have(actor: Actor, vmid: int) -> None:
    """VM.Allocate on a VM lets a caller grant their own privileges on it."""
    actor.endpoint.create(vmid)
    actor.allow(f"/vms/{vmid}", "VM.Allocate", "VM.Audit")
    give = actor.api().access.acl.put
    error = refused(give, path=f"/vms/{vmid}", roles="Administrator", users="actor@pve")
    assert error.content == "ACL update failed: 400 Parameter verification failed."
    give(path=f"/vms/{vmid}", roles="Acting", users="actor@pve")


@pytest.mark.parametrize(
    ("path", "privilege", "answer"),
    [
        ("/pool/contract", "Pool.Allocate", "ACL update failed: 400 Parameter verification failed."),
        ("/storage/local", "Datastore.Allocate", "ACL update failed: 400 Parameter verification failed."),
        ("/vms", "VM.Allocate", "Permission check failed (/vms, Permissions.Modify)"),
    ],
)
def test_privileges_without_propagation_cannot_be_granted_with_it(
    actor: Actor, path: str, privilege: str, answer: str
) -> None:
    actor.allow(path, privilege, propagate=0)
    give = actor.api().access.acl.put
    assert refused(give, path=path, roles="Acting", users="actor@pve", propagate=1).content == answer
    if path != "/vms":
        give(path=path, roles="Acting", users="actor@pve", propagate=0)
        give(path=path, roles="Acting", users="actor@pve", propagate=1, delete=1)


def test_privileges_propagate_through_the_pool(actor: Actor, vmid: int) -> None:
    actor.endpoint.create(vmid)
    vm = actor.api().nodes(actor.endpoint.node).qemu(vmid)
    actor.allow(f"/pool/{actor.endpoint.pool}", "VM.Audit")
    assert vm.config.get()["digest"]
    actor.remove()
    actor.__init__(actor.endpoint)
    actor.allow("/vms", "VM.Audit", propagate=0)
    assert refused(actor.api().nodes(actor.endpoint.node).qemu(vmid).config.get).status_code == 403


def test_entry_on_a_longer_path_replaces_those_above(actor: Actor) -> None:
    actor.allow("/", "Sys.Audit", "VM.Audit")
    actor.root.access.acl.put(path="/vms/500", users="actor@pve", roles="NoAccess")
    got = actor.api().access.permissions
    assert got.get(path="/vms/499")["/vms/499"] == {"Sys.Audit": 1, "VM.Audit": 1}
    assert got.get(path="/vms/500")["/vms/500"] == {}


def test_privsep_token_has_only_common_privileges(actor: Actor) -> None:
    actor.allow("/", "Sys.Audit", "VM.Audit")
    answer = actor.root.access.users("actor@pve").token("tt").post()
    e = actor.endpoint
    api = ProxmoxAPI(
        e.host,
        port=e.port,
        user="actor@pve",
        token_name="tt",
        token_value=answer["value"],
        verify_ssl=e.ca_file,
    )
    assert api.access.permissions.get() == {}
    actor.root.access.acl.put(path="/vms", tokens="actor@pve!tt", roles="PVEVMAdmin")
    assert api.access.permissions.get(path="/vms")["/vms"] == {"VM.Audit": 1}
    assert refused(actor.root.access.users("actor@pve").token("tt").post).errors == {
        "tokenid": "Token already exists."
    }


def test_user_is_not_named_like_a_token(ours: Endpoint) -> None:
    """Such a user saw the row of the user before the exclamation mark."""
    error = refused(ours.root().access.users.post, userid="root@pam!x@pve")
    assert error.errors is not None
    assert "'root@pam!x@pve' does not look like a valid user name" in error.errors["userid"]


def test_privilege_of_pve_8_is_refused(ours: Endpoint) -> None:
    error = refused(ours.root().access.roles.post, roleid="Old", privs="VM.Monitor")
    assert error.errors == {"privs": "invalid format - invalid privilege 'VM.Monitor'\n"}


def test_disabled_user_and_old_password_are_refused(actor: Actor) -> None:
    api = actor.api()
    api.access.password.put(userid="actor@pve", password="another-secret")
    with pytest.raises(AuthenticationError):
        actor.api()
    assert api.version.get()
    actor.root.access.users("actor@pve").put(enable=0)
    assert refused(api.version.get).status_code == 401


def test_expired_tickets_are_refused(ours: Endpoint) -> None:
    assert ours.state is not None
    cluster = ours.state / "etc/pve"
    tickets = Tickets(Access(cluster / "access.json"), cluster / "authkey")
    for age_s, status in ((60, 200), (LIFETIME_S + 60, 401)):
        ticket, _ = tickets.issue("root@pam", time.time() - age_s)
        answer = ours.request("GET", "/version", {"Cookie": f"PVEAuthCookie={ticket}"})
        assert answer.status_code == status
    forged = ticket[:-8] + "AAAAAAA="
    assert ours.request("GET", "/version", {"Cookie": f"PVEAuthCookie={forged}"}).status_code == 401
