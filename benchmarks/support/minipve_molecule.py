"""A scenario of molecule-proxmox against minipve, for benchmarks/minipve_clients.py.

The template is the guests' image. Molecule clones and starts it, logs in over SSH through minipve's
ProxyCommand, sets the host name, applies a playbook, verifies it, and destroys the VM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.support.minipve_curl import finish, request

NAME = "molecule-proxmox"
PACKAGES = (NAME, "ansible-core", "proxmoxer", "requests")
TIMEOUT_S = 900
_CONVERGE = [
    {"hosts": "all", "tasks": [{"ansible.builtin.copy": {"dest": "/etc/motd", "content": "hello\n"}}]}
]
_VERIFY = [
    {
        "hosts": "all",
        "tasks": [
            {"ansible.builtin.command": "hostname", "register": "name", "changed_when": False},
            {"ansible.builtin.assert": {"that": "name.stdout == 'instance'"}},
        ],
    }
]


def steps(programs: Path, variables: Mapping[str, str], work: Path) -> Iterator[tuple[str, str | None]]:
    """Run Molecule's commands. Yields the title and the error of each; the error is None if it succeeded."""
    key = work / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    _create_template(variables, key.with_suffix(".pub").read_text().strip())
    scenario = work / "molecule/default"
    scenario.mkdir(parents=True)
    files = {"molecule.yml": _configuration(variables, key), "converge.yml": _CONVERGE, "verify.yml": _VERIFY}
    for name, content in files.items():
        (scenario / name).write_text(json.dumps(content, indent=1))
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(work), "NO_COLOR": "1"}
    own["ANSIBLE_PYTHON_INTERPRETER"] = "auto_silent"  # that of the guest
    for command in ("create", "prepare", "converge", "verify", "destroy"):
        result = subprocess.run(
            [programs / "molecule", command], env=os.environ | variables | own, cwd=work,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        yield command, None if result.returncode == 0 else result.stdout + result.stderr


def _create_template(variables: Mapping[str, str], public_key: str) -> None:
    """Build and upload the guests' image, and create a template VM from it."""
    image = subprocess.run(
        [sys.executable, "-m", "minipve", "image"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    form = ["--form", "content=import", "--form", f"filename=@{image}"]
    finish(variables, request(variables, "/nodes/pve/storage/local/upload", *form))
    options = {
        "vmid": "900",
        "name": "molecule",
        "memory": "512",
        "agent": "1",
        "net0": "virtio,bridge=vmbr0",
        "virtio0": f"local:0,import-from=local:import/{Path(image).name},format=qcow2",
        "ide2": "local:cloudinit",
        "ipconfig0": "ip=10.77.0.90/24,gw=10.77.0.1",
        "ciuser": "root",
        "sshkeys": quote(public_key, safe=""),
    }
    finish(variables, request(variables, "/nodes/pve/qemu", **options))
    finish(variables, request(variables, "/nodes/pve/qemu/900/template", "--data", ""))


def _configuration(variables: Mapping[str, str], key: Path) -> dict[str, Any]:
    """Return the contents of molecule.yml."""
    options = {
        "api_host": variables["PROXMOX_HOST"],
        "api_port": int(variables["PROXMOX_PORT"]),
        "api_user": variables["PROXMOX_USER"],
        "api_token_id": variables["PROXMOX_TOKEN_ID"],
        "api_token_secret": variables["PROXMOX_TOKEN_SECRET"],
        "node": "pve",
        "ssh_user": "root",
        "ssh_identity_file": str(key),
        "template_name": "molecule",
        "full": False,
        "timeout": 300,
    }
    ssh = [
        "-o UserKnownHostsFile=/dev/null",
        "-o StrictHostKeyChecking=no",
        f"-o ProxyCommand='{variables['MINIPVE_CONNECT']} %h %p'",
    ]
    return {
        "driver": {"name": NAME, "options": options, "ssh_connection_options": ssh},
        "platforms": [{"name": "instance"}],
        "provisioner": {"name": "ansible"},
        "verifier": {"name": "ansible"},
    }
