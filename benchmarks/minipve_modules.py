"""Run the modules of the Ansible collection community.proxmox against minipve, and print a table.

    .venv/bin/python benchmarks/minipve_modules.py                        # about 5 minutes
    .venv/bin/python benchmarks/minipve_modules.py --collection FOLDER    # a checkout of it

One playbook has the steps of all modules. A step with ``again`` is repeated, and must then change nothing.
The verdicts:

    works     all steps succeed
    partly    some steps succeed, and minipve refuses the others in clear words
    refused   minipve refuses all steps in clear words
    wrong     a step fails for another reason

The exit status is 1 if a module is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.minipve_clients import endpoint, environment  # noqa: E402

REFUSAL = re.compile(
    r"not implemented|not supported here|is supported here|minipve has no|no physical interface"
    r"|the only storage is|does not support .* content"
)


@dataclass(frozen=True)
class Step:
    """A call of a module. With ``again`` a second call must report no change."""

    name: str
    arguments: dict[str, Any]
    again: bool = False


def step(title: str, /, again: bool = False, **arguments: Any) -> Step:
    return Step(title, arguments, again)


_RULE = {"type": "in", "action": "ACCEPT", "proto": "tcp", "dport": "443"}
_MEMBERS = [{"vm": 400}, {"storage": "local"}]
_ALIASES = [{"name": "office", "cidr": "192.0.2.0/24"}]
MODULES: dict[str, list[Step]] = {
    # read only
    "proxmox_vm_info": [step("all")],
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
    "proxmox_firewall_info": [step("cluster", level="cluster")],
    "proxmox_node_network_info": [step("all", node="pve")],
    "proxmox_node_firewall_options_info": [step("read", node_name="pve")],
    "proxmox_backup_info": [step("all"), step("jobs", backup_jobs=True)],
    "proxmox_cluster_status_info": [step("read")],
    "proxmox_cluster_ha_rules_info": [step("all")],
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
    # machines
    "proxmox_kvm": [
        step("create", again=True, vmid=400, name="machine", node="pve", memory=32, kvm=False,
             scsi={"scsi0": "local:1,format=qcow2"}, net={"net0": "virtio,bridge=vmbr0"}),
        step("start", vmid=400, node="pve", state="started", timeout=60),
        step("stop", vmid=400, node="pve", state="stopped", force=True, timeout=60),
        step("raw disk", vmid=401, name="raw", node="pve", scsi={"scsi0": "local:1,format=raw"}),
    ],
    "proxmox_nic": [step("create", again=True, vmid=400, interface="net1", bridge="vmbr0", model="virtio",
                         mac="02:00:00:00:00:01")],
    "proxmox_disk": [
        step("create", vmid=400, disk="scsi1", storage="local", size=1, format="qcow2", state="present"),
        step("grow", vmid=400, disk="scsi1", size="+1G", state="resized"),
        step("detach", vmid=400, disk="scsi1", state="detached"),
    ],
    "proxmox_snap": [
        step("create", vmid=400, snapname="first", state="present"),
        step("roll back", vmid=400, snapname="first", state="rollback"),
        step("delete", vmid=400, snapname="first", state="absent"),
    ],
    "proxmox_snap_info": [step("all", vmid=400)],
    "proxmox_pool": [step("create", again=True, poolid="clients", comment="a pool")],
    "proxmox_pool_member": [
        step("add", again=True, poolid="clients", members=_MEMBERS),
        step("remove", again=True, poolid="clients", state="absent", members=_MEMBERS),
    ],
    "proxmox_template": [step("delete nothing", node="pve", template="nosuch.tar.gz", state="absent")],
    "proxmox": [step("list", vmid=499, node="pve", state="absent")],
    # firewall
    "proxmox_firewall": [
        step("rules", level="cluster", state="present", rules=[_RULE | {"pos": 0}]),
        step("aliases", level="cluster", state="present", aliases=_ALIASES),
    ],
    "proxmox_cluster_firewall_security_group": [step("create", again=True, name="web", rules=[_RULE])],
    "proxmox_node_firewall_options": [step("log level", again=True, state="enabled", node_name="pve",
                                           log_level_in="alert")],
    "proxmox_cluster_firewall_options": [
        step("disabled", again=True, state="disabled"),
        step("enabled", state="enabled"),
    ],
    # network
    "proxmox_node_network": [step("bridge", again=True, node="pve", state="present", iface="vmbr9",
                                  iface_type="bridge", cidr="192.0.2.1/24")],
    "proxmox_zone": [step("create", zone="testz", type="simple", state="present")],
    "proxmox_vnet": [
        step("create", vnet="testv", zone="testz", state="present"),
        step("update", vnet="testv", zone="testz", alias="one", update=True, state="present"),
    ],
    "proxmox_subnet": [
        step("create", subnet="10.99.0.0/24", vnet="testv", zone="testz", gateway="10.99.0.1"),
        step("delete", subnet="10.99.0.0/24", vnet="testv", zone="testz", state="absent"),
    ],
    "proxmox_node": [step("online", node_name="pve", power_state="online")],
    # what minipve does not have
    "proxmox_storage": [step("create", nodes=["pve"], name="store", state="present", type="dir",
                             dir_options={"path": "/srv"})],
    "proxmox_backup": [step("create", mode="include", vmids=[400], storage="local")],
    "proxmox_cluster_ha_groups": [step("create", name="first", nodes="pve", state="present")],
    "proxmox_cluster_ha_resources": [step("create", name="vm:400", state="present")],
    "proxmox_cluster": [step("create", cluster_name="test", state="present")],
}  # fmt: skip
"""Module -> its steps."""


@dataclass
class Result:
    """The outcome of a module's steps."""

    succeeded: int = 0
    refused: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.wrong:
            return "wrong"
        if self.refused:
            return "partly" if self.succeeded else "refused"
        return "works"

    def add(self, title: str, answer: dict[str, Any], unchanged: bool) -> None:
        """Add the answer of a step, which must report no change if ``unchanged``."""
        message = " ".join(str(answer.get("msg", "")).split())
        if answer.get("failed"):
            refused = REFUSAL.search(message)
            (self.refused if refused else self.wrong).append(f"{title}: {message[-200:]}")
        elif unchanged and answer["changed"]:
            self.wrong.append(f"{title}: changed again")
        else:
            self.succeeded += 1


def calls() -> Iterator[tuple[str, str, Step, bool]]:
    """Yield module, title, step, and whether the call must change nothing."""
    for module, steps in MODULES.items():
        for each in steps:
            yield module, each.name, each, False
            if each.again:
                yield module, f"{each.name} again", each, True


def playbook(answers: Path) -> list[dict[str, Any]]:
    """Return a playbook that makes all calls, and writes the list of their answers to a file."""
    tasks: list[dict[str, Any]] = [
        {
            "name": f"{module}: {title}",
            f"community.proxmox.{module}": {"validate_certs": True} | call.arguments,
            "register": f"answer_{number}",
            "ignore_errors": True,
        }
        for number, (module, title, call, _) in enumerate(calls())
    ]
    names = ", ".join(task["register"] for task in tasks)
    write = {"content": f"{{{{ [{names}] | to_json }}}}", "dest": str(answers)}
    tasks.append({"ansible.builtin.copy": write})
    return [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]


def run(folder: Path, collection: Path | None, variables: dict[str, str]) -> dict[str, Result]:
    """Run the playbook in an environment in ``folder``. Returns a result per module."""
    programs = environment(folder / "ansible", ("ansible-core", "proxmoxer", "requests", "requests-toolbelt"))
    target = folder / "collections/ansible_collections/community/proxmox"
    if collection is not None:
        shutil.copytree(collection, target, dirs_exist_ok=True)
    elif not target.exists():
        install = ["collection", "install", "community.proxmox", "-p", str(folder / "collections")]
        subprocess.run([str(programs / "ansible-galaxy"), *install], check=True)
    extra = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PYTHON_INTERPRETER": str(programs / "python"),
        "REQUESTS_CA_BUNDLE": variables["PROXMOX_CA_FILE"],
    }
    answers = folder / "answers.json"
    answers.unlink(missing_ok=True)
    (folder / "playbook.yml").write_text(json.dumps(playbook(answers), indent=1))
    subprocess.run(
        [programs / "ansible-playbook", folder / "playbook.yml"],
        env=os.environ | variables | extra, cwd=folder, check=True, stdout=sys.stderr,
    )  # fmt: skip
    results = {module: Result() for module in MODULES}
    for (module, title, _, unchanged), answer in zip(calls(), json.loads(answers.read_text()), strict=True):
        results[module].add(title, answer, unchanged)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache/minipve-clients")
    parser.add_argument("--collection", type=Path, help="folder with the collection community.proxmox")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minipve-clients-") as name, endpoint(Path(name)) as variables:
        results = run(args.folder, args.collection, variables)
    print("| module | verdict | refused or wrong |\n|---|---|---|")
    for module, result in results.items():
        print(f"| {module} | {result.verdict} | {'; '.join([*result.refused, *result.wrong])} |")
    counts = Counter(result.verdict for result in results.values())
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    raise SystemExit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
