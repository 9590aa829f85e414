"""Read methods that other tools call first, such as the log, macros, capabilities, packages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from minipve.config.rules import schema

from tests.contract.endpoint import Endpoint, refused


@pytest.fixture(scope="module")
def root(own_for_all: Endpoint) -> Any:
    return own_for_all.root()


def test_lists_that_are_empty(root: Any) -> None:
    assert root.nodes("pve").disks("list").get() == []
    assert root.cluster.jobs("realm-sync").get() == []
    assert root.nodes("pve").capabilities.qemu("cpu-flags").get() == []


@pytest.mark.parametrize(
    ("path", "key", "name"),
    [
        ("/cluster/jobs", "subdir", "realm-sync"),
        ("/cluster/notifications", "name", "matchers"),
        ("/cluster/notifications/endpoints", "name", "sendmail"),
        ("/nodes/pve/apt", "id", "versions"),
        ("/nodes/pve/capabilities", "name", "qemu"),
        ("/nodes/pve/capabilities/qemu", "name", "machines"),
        ("/nodes/pve/disks", "name", "list"),
    ],
)
def test_indexes(root: Any, path: str, key: str, name: str) -> None:
    assert {key: name} in root(path.strip("/")).get()


def test_log_of_the_cluster_shows_tasks_of_whoever_may_see_them(own_for_all: Endpoint, root: Any) -> None:
    own_for_all.create(100)
    failed = root.nodes("pve").qemu(100).status.start.post(timeout=1)
    own_for_all.wait(failed, root)
    newest, *_, oldest = root.cluster.log.get()
    assert newest["msg"].startswith("end task UPID:pve:") and newest["node"] == "pve"
    assert (oldest["user"], oldest["pri"], oldest["id"]) == (own_for_all.user, 6, "1:pve")
    assert oldest["msg"].startswith("starting task UPID:pve:")
    assert len(root.cluster.log.get(max=1)) == 1
    users = {row["user"] for row in own_for_all.api().cluster.log.get()}
    assert users == {own_for_all.user} < {row["user"] for row in root.cluster.log.get()}


def test_hosts_are_those_of_this_machine(root: Any) -> None:
    hosts = root.nodes("pve").hosts.get()
    assert hosts["data"] == Path("/etc/hosts").read_text()
    assert hosts["digest"] == hashlib.sha1(hosts["data"].encode()).hexdigest()


def test_notifications_have_the_target_and_the_matcher_that_are_built_in(root: Any) -> None:
    notifications = root.cluster.notifications
    (target,) = notifications.targets.get()
    (matcher,) = notifications.matchers.get()
    assert (target["name"], target["type"], target["origin"]) == ("mail-to-root", "sendmail", "builtin")
    assert matcher["target"] == ["mail-to-root"]
    assert notifications.matchers(matcher["name"]).get()["mode"] == "all"
    assert notifications.endpoints.sendmail("mail-to-root").get()["mailto-user"] == ["root@pam"]
    assert [notifications.endpoints(kind).get() for kind in ("gotify", "smtp", "webhook")] == [[], [], []]
    missing = refused(notifications.endpoints.gotify("nosuch").get)
    assert missing.status_code == 404 and "gotify endpoint 'nosuch' not found" in str(missing)
    values = notifications("matcher-field-values").get()
    assert {"field": "hostname", "value": "pve"} in values
    assert {row["field"] for row in values} <= {row["name"] for row in notifications("matcher-fields").get()}


def test_machine_types_and_processor_models_can_be_used(own_for_all: Endpoint, root: Any) -> None:
    qemu = root.nodes("pve").capabilities.qemu
    machines = qemu.machines.get()
    assert [(row["id"], row["type"]) for row in machines] == [("pc", "i440fx"), ("q35", "q35")]
    vendors = {row["name"]: row["vendor"] for row in qemu.cpu.get()}
    assert (vendors["Skylake-Server"], vendors["EPYC"], vendors["x86-64-v2-AES"]) == (
        "GenuineIntel", "AuthenticAMD", "default",
    )  # fmt: skip
    own_for_all.create(110, machine=machines[1]["id"], cpu="EPYC")
    own_for_all.done(root.nodes("pve").qemu(110).status.start.post(), root)
    own_for_all.done(root.nodes("pve").qemu(110).status.stop.post(), root)
    assert qemu.migration.get() == {"has-dbus-vmstate": 0}


def test_packages_have_proxmox_s_ifupdown2(root: Any) -> None:
    packages = {row["Package"]: row for row in root.nodes("pve").apt.versions.get()}
    assert packages["ifupdown2"]["CurrentState"] == "Installed"
    assert "+pmx" in packages["ifupdown2"]["OldVersion"]
    assert packages["pve-manager"]["ManagerVersion"].startswith(root.version.get()["version"])


@pytest.mark.parametrize(
    ("path", "privilege"),
    [
        ("/nodes/{node}/hosts", "Sys.Audit"),
        ("/nodes/{node}/apt/versions", "Sys.Audit"),
        ("/nodes/{node}/disks/list", "Sys.Audit"),
        ("/cluster/notifications/targets", "Mapping"),
    ],
)
def test_rights_are_those_of_pve(own_for_all: Endpoint, path: str, privilege: str) -> None:
    assert privilege in str(schema.method("GET", path).permissions)
    own_for_all.root().access.users.post(userid="nobody@pve", password="secret-word")
    try:
        created = own_for_all.root().access.users("nobody@pve").token("reader").post(privsep=0)
        token = {"Authorization": f"PVEAPIToken={created['full-tokenid']}={created['value']}"}
        assert own_for_all.request("GET", path.format(node="pve"), token).status_code == 403
    finally:
        own_for_all.root().access.users("nobody@pve").delete()
