"""The modules of the Ansible collection community.proxmox that benchmarks/minipve_clients.py calls.

One playbook has the steps of all modules in this order, because later steps use what earlier ones create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """A call of a module. With ``again`` a second call must report no change.

    ``refusal`` is a pattern of the error that this step must get, where the module hides minipve's own text.
    """

    name: str
    arguments: dict[str, Any]
    again: bool = False
    refusal: str = ""


def step(title: str, /, again: bool = False, refusal: str = "", **arguments: Any) -> Step:
    return Step(title, arguments, again, refusal)


_MEMBERS = [{"vm": 400}, {"storage": "local"}]
_CT = {"vmid": 410, "node": "pve"}
_OSD = {"node": "pve", "dev": "/dev/sdb", "state": "present"}
_ACME_DOMAINS = [{"domain": "pve.example.com"}]
TEMPLATE = "tiny.tar.gz"  # minipve_clients.py writes this file
MODULES: dict[str, list[Step]] = {
    # read only
    "proxmox_vm_info": [step("all"), step("one", vmid=100, config="current")],
    "proxmox_node_info": [step("all")],
    "proxmox_storage_info": [step("all"), step("one", storage="local")],
    "proxmox_storage_contents_info": [step("images", node="pve", storage="local", content="images")],
    "proxmox_tasks_info": [step("all", node="pve")],
    "proxmox_user_info": [step("all"), step("one", userid="root@pam")],
    "proxmox_group_info": [step("all")],
    "proxmox_domain_info": [step("all"), step("one", domain="pve")],
    "proxmox_vnet_info": [step("all")],
    "proxmox_zone_info": [step("all")],
    "proxmox_ipam_info": [step("all")],
    "proxmox_node_network_info": [step("all", node="pve")],
    "proxmox_backup_info": [step("all"), step("jobs", backup_jobs=True)],
    "proxmox_cluster_status_info": [step("read")],
    "proxmox_cluster_ha_rules_info": [step("all")],
    "proxmox_acme_accounts_info": [step("all")],
    "proxmox_acme_plugins_info": [step("all")],
    "proxmox_acme_certificates_info": [step("all", node_name="pve")],
    # users and permissions
    "proxmox_role": [
        step("create", again=True, roleid="Tester", privs=["VM.Audit"]),
        step("delete", again=True, roleid="Tester", state="absent"),
    ],
    "proxmox_group": [
        step("create", again=True, name="testers", comment="a group"),
        step("create another", name="others"),
        step("delete", again=True, name="others", state="absent"),
    ],
    "proxmox_user": [
        step("create", again=True, name="tester@pve", groups=["testers"], comment="a user", enable=True),
        step("delete", again=True, name="tester@pve", state="absent"),
    ],
    "proxmox_access_acl": [
        step("for a user", again=True, path="/vms", type="user", ugid="root@pam", roleid="PVEAuditor"),
        step("for a group", again=True, path="/vms", type="group", ugid="testers", roleid="PVEAuditor"),
        step("delete", again=True, state="absent", path="/vms"),
    ],
    "proxmox_domain": [
        step("create", realm="test", state="present", type="ldap", ldap_base_dn="dc=test",
             ldap_user_attr="uid", ldap_primary_server="ldap.test"),
    ],
    "proxmox_domain_sync": [step("sync", realm="pve", scope="both")],
    # machines
    "proxmox_kvm": [
        step("create", again=True, vmid=400, name="machine", node="pve", memory=32, kvm=False,
             scsi={"scsi0": "local:1,format=qcow2"}, net={"net0": "virtio,bridge=vmbr0"}),
        step("update", vmid=400, node="pve", update=True, memory=48, description="a machine"),
        step("start", again=True, vmid=400, node="pve", state="started", timeout=60),
        step("stop", again=True, vmid=400, node="pve", state="stopped", force=True, timeout=5),
        step("clone", vmid=400, clone="machine", newid=402, name="copy", node="pve", timeout=60),
        step("migrate", vmid=402, node="pve", migrate=True, target="pve2", timeout=60),
        step("delete", again=True, vmid=402, state="absent"),
        step("raw disk", vmid=401, name="raw", node="pve", scsi={"scsi0": "local:1,format=raw"}),
    ],
    "proxmox_sendkey": [
        step("running machine", vmid=100, keys_send=["ctrl-alt-delete"]),
        step("text", vmid=100, string_send="root\n"),
    ],
    "proxmox_nic": [
        step("create", again=True, vmid=400, interface="net1", bridge="vmbr0", model="virtio",
             mac="02:00:00:00:00:01"),
        step("delete", again=True, vmid=400, interface="net1", state="absent"),
    ],
    "proxmox_disk": [
        step("create", again=True, vmid=400, disk="scsi1", storage="local", size=1, state="present"),
        step("grow", vmid=400, disk="scsi1", size="+1G", state="resized"),
        step("detach", again=True, vmid=400, disk="scsi1", state="detached"),
        step("delete", again=True, vmid=400, disk="unused0", state="absent"),
    ],
    "proxmox_snap": [
        step("create", again=True, vmid=400, snapname="first", state="present"),
        step("roll back", vmid=400, snapname="first", state="rollback"),
    ],
    "proxmox_snap_info": [step("all", vmid=400), step("one", vmid=400, snapname="first")],
    "proxmox_pool": [step("create", again=True, poolid="clients", comment="a pool")],
    "proxmox_pool_member": [
        step("add", again=True, poolid="clients", members=_MEMBERS),
        step("remove", again=True, poolid="clients", state="absent", members=_MEMBERS),
    ],
    "proxmox_template": [
        step("upload", again=True, node="pve", src=TEMPLATE, content_type="vztmpl"),
        step("delete nothing", node="pve", template="nosuch.tar.gz", state="absent"),
    ],
    "proxmox": [
        step("create", again=True, **_CT, ostemplate=f"local:vztmpl/{TEMPLATE}", hostname="container",
             memory=64, disk="local:1", netif={"net0": "name=eth0,bridge=vmbr0,ip=10.77.0.41/24"}),
        step("update", **_CT, update=True, hostname="container", description="a container"),
        step("start", again=True, **_CT, state="started"),
        step("restart", **_CT, state="restarted", timeout=60),
        step("stop", again=True, **_CT, state="stopped", force=True),
        step("clone", vmid=411, node="pve", clone=410, hostname="copy"),
        step("delete the copy", again=True, vmid=411, node="pve", state="absent"),
        step("template", **_CT, state="template"),
    ],
    # network
    "proxmox_node_network": [
        step("bridge", again=True, node="pve", state="present", iface="vmbr9", iface_type="bridge",
             cidr="192.0.2.1/24"),
        step("delete", again=True, node="pve", state="absent", iface="vmbr9", iface_type="bridge"),
    ],
    "proxmox_zone": [
        step("create", zone="testz", type="simple", state="present"),
        step("other type", zone="testq", type="vlan", bridge="vmbr0", state="present"),
    ],
    "proxmox_vnet": [
        step("create", vnet="testv", zone="testz", state="present"),
        step("update", vnet="testv", zone="testz", alias="one", update=True, state="present"),
    ],
    "proxmox_subnet": [
        step("create", subnet="10.99.0.0/24", vnet="testv", zone="testz", gateway="10.99.0.1"),
        step("delete", subnet="10.99.0.0/24", vnet="testv", zone="testz", state="absent"),
    ],
    "proxmox_node": [
        step("online", node_name="pve", power_state="online"),
        step("subscription", node_name="pve", subscription={"state": "present", "key": "ABCD"}),
    ],
    # what minipve does not have
    "proxmox_storage": [step("create", nodes=["pve"], name="store", state="present", type="dir",
                             dir_options={"path": "/srv"})],
    "proxmox_backup": [step("create", mode="include", vmids=[400], storage="local")],
    "proxmox_backup_schedule": [step("add", backup_id="backup-1", vm_id=400, state="present")],
    "proxmox_cluster_ha_groups": [step("create", name="first", nodes="pve", state="present")],
    "proxmox_cluster_ha_resources": [step("create", name="vm:400", state="present")],
    "proxmox_cluster_ha_rules": [step("create", name="first", state="present", type="node-affinity",
                                      nodes="pve", resources="vm:400")],
    "proxmox_cluster": [step("create", refusal="already part of a different cluster", cluster_name="test",
                             state="present")],
    "proxmox_cluster_join_info": [step("read", refusal="Node is not part of a cluster")],
    "proxmox_acme_account": [step("create", name="first", contact="a@example.com",
                                  directory="https://acme.example.com/directory")],
    "proxmox_acme_account_info": [step("read", name="first")],
    "proxmox_acme_plugin_dns": [step("create", name="cloudflare", plugin="cf", data={"CF_Token": "x"})],
    "proxmox_acme_plugin_info": [step("read", name="first")],
    "proxmox_acme_certificate": [step("order", node_name="pve", account="first", domains=_ACME_DOMAINS)],
    "proxmox_ceph_mds": [step("create", node="pve", state="present")],
    "proxmox_ceph_mgr": [step("create", node="pve", state="present")],
    "proxmox_ceph_mon": [step("create", node="pve", state="present")],
    "proxmox_ceph_osd": [step("create", **_OSD)],
    "proxmox_ceph_pool": [step("create", node="pve", name="pool", state="present")],
}  # fmt: skip
"""Module -> its steps."""
