"""Start the local endpoint of the embedded lab, and make the lab's account on it.

    python -m dasklab.machines.local_endpoint --lab dasklab --state DIR --management 10.77.0.1/24

The endpoint (minipve) is started as a program and reached by URL only. Its root@pam makes what an
administrator of a real node makes with the lines that ``dasklab doctor`` prints: a pool, roles, a user and a
token with exactly the privileges that the lab needs. The token is kept in ``DIR/account.json`` (0600).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.machines import privileges
from dasklab.machines.endpoint import Endpoint
from dasklab.machines.privileges import Need
from dasklab.machines.proxmox import Pve
from dasklab.model.packages import PINS
from dasklab.terminal import one_line_errors

USER, TOKEN = "lab@pve", "dasklab"
BRIDGES = ("vmbr0", "vmbr1")
STORAGE = "local"
ENDPOINT_FACTS = ("host", "port", "user", "token_id", "token_secret", "ca_file")


def start(lab: str, state: Path, management: str, nodes: int) -> None:
    """Start the endpoint unless it runs, and make or renew the lab's account.

    Raises:
        LabError: the endpoint refused a call.
        subprocess.CalledProcessError: it did not start; it has printed why.
    """
    command = [sys.executable, "-m", "minipve", "--state", str(state), "--requirements", str(PINS)]
    serve = ["serve", "--detach", "--management", management]
    subprocess.run([*command, *serve, *(["--nodes", str(nodes)] if nodes > 1 else [])], check=True)
    facts = json.loads((state / "endpoint.json").read_text())
    account(facts, state / "account.json", lab, ["pve", *(f"pve{number}" for number in range(2, nodes + 1))])


def account(facts: Mapping[str, Any], file: Path, lab: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Return the lab's account as ``file`` keeps it; make or renew it where it lacks a privilege.

    ``facts`` is the content of ``endpoint.json``: the address of the endpoint and root's token.
    """
    zone = privileges.zone(lab) if len(nodes) > 1 else ""
    needs = privileges.needed(lab, nodes, STORAGE, STORAGE, BRIDGES, zone=zone)
    grants = [(need.path, need.role, sorted(need.privileges), need.propagate) for need in needs]
    digest = hashlib.sha256(repr((lab, grants)).encode()).hexdigest()
    content = _read(file)
    if content.get("digest") != digest:
        root = Pve(Endpoint.from_inventory({key: facts[key] for key in ENDPOINT_FACTS}))
        secret = make_account(root, lab, needs)
        content = {"user": USER, "token_id": TOKEN, "token_secret": secret, "digest": digest}
        atomic.write_text(file, json.dumps(content, indent=1) + "\n", 0o600)
    return content


def make_account(root: Pve, pool: str, needs: Iterable[Need]) -> str:
    """Make pool, roles, user and token with ``needs``; return the token's secret.

    What exists already is brought up to date. A token's secret is shown only when the
    token is made, so an existing token is replaced.
    """
    needs = list(needs)
    access = root.api.access
    users = {row["userid"]: row for row in access.users.get(full=1)}
    if USER not in users:
        access.users.post(userid=USER)
    if pool not in {row["poolid"] for row in root.api.pools.get()}:
        root.api.pools.post(poolid=pool, comment="the lab's machines")
    roles = {row["roleid"] for row in access.roles.get()}
    for role, privs in sorted({need.role: ",".join(need.privileges) for need in needs}.items()):
        if role in roles:
            access.roles(role).put(privs=privs)
        else:
            access.roles.post(roleid=role, privs=privs)
    token = access.users(USER).token(TOKEN)
    if TOKEN in {row["tokenid"] for row in users.get(USER, {}).get("tokens", [])}:
        token.delete()
    secret: str = token.post(privsep=1)["value"]
    for need in needs:
        grant = {"path": need.path, "roles": need.role, "propagate": int(need.propagate)}
        access.acl.put(**grant, users=USER, tokens=f"{USER}!{TOKEN}")
    return secret


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


@click.command()
@click.option("--lab", required=True, help="The lab's name: its pool.")
@click.option("--state", type=click.Path(path_type=Path), required=True, help="The endpoint's state folder.")
@click.option("--management", required=True, help="The node's address on its management bridge.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Nodes of the cluster that it plays.")
def main(lab: str, state: Path, management: str, nodes: int) -> None:
    """Start the local endpoint of a lab, and make the lab's account on it."""
    with one_line_errors(LabError):
        try:
            start(lab, state, management, nodes)
        except subprocess.CalledProcessError as failed:
            sys.exit(failed.returncode)


if __name__ == "__main__":
    main()
