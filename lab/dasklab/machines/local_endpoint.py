"""Start the local endpoint of a lab, and create the lab's account on it.

    python -m dasklab.machines.local_endpoint --lab dasklab --state DIR --management 10.77.0.1/24

The endpoint (minipve) is a program that is reached by URL only. Its root@pam creates what the administrator
of a real node creates with the commands that ``dasklab doctor`` prints: a pool, roles, a user and a token
with exactly the privileges that the lab needs. The token is stored in ``DIR/account.json`` (0600).
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
from dasklab.machines.endpoint import privileges
from dasklab.machines.endpoint.privileges import Need
from dasklab.machines.endpoint.proxmox import Pve
from dasklab.machines.inventory.endpoint import Endpoint
from dasklab.machines.inventory.state_folder import ACCOUNT, read_account, refuse_foreign
from dasklab.machines.inventory.topology import zone_of
from dasklab.model.settings.packages import PINS
from dasklab.terminal import one_line_errors

USER, TOKEN = "lab@pve", "dasklab"
BRIDGES = ("vmbr0", "vmbr1")
STORAGE = "local"
ENDPOINT_FACTS = ("host", "port", "user", "token_id", "token_secret", "ca_file")


def start(lab: str, state: Path, management: str, nodes: int) -> None:
    """Start the endpoint unless it is running, and create or update the lab's account.

    Raises:
        LabError: the state folder belongs to another lab, or the endpoint refused a call.
        subprocess.CalledProcessError: the endpoint did not start; it has printed why.
    """
    refuse_foreign(state, lab)
    command = [sys.executable, "-m", "minipve", "--state", str(state), "--requirements", str(PINS)]
    serve = ["serve", "--detach", "--management", management]
    subprocess.run([*command, *serve, *(["--nodes", str(nodes)] if nodes > 1 else [])], check=True)
    facts = json.loads((state / "endpoint.json").read_text(encoding="utf-8"))
    account(facts, state / ACCOUNT, lab, ["pve", *(f"pve{number}" for number in range(2, nodes + 1))])


def account(facts: Mapping[str, Any], file: Path, lab: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Return the lab's account. Create it, or update it if it lacks a privilege.

    Args:
        facts: the content of ``endpoint.json``: the endpoint's address and root's token.
        file: where the account is stored.
        lab: the lab's name.
        nodes: the endpoint's nodes.
    """
    zone = zone_of(lab) if len(nodes) > 1 else ""
    needs = privileges.needed(lab, nodes, STORAGE, STORAGE, BRIDGES, zone=zone)
    grants = [(need.path, need.role, sorted(need.privileges), need.propagate) for need in needs]
    digest = hashlib.sha256(repr((lab, grants)).encode()).hexdigest()
    content = read_account(file.parent)
    if (content.get("digest"), content.get("lab")) != (digest, lab):
        root = Pve(Endpoint.from_inventory({key: facts[key] for key in ENDPOINT_FACTS}))
        secret = create_account(root, lab, needs)
        content = {"user": USER, "token_id": TOKEN, "token_secret": secret, "digest": digest, "lab": lab}
        atomic.write_text(file, json.dumps(content, indent=1) + "\n", 0o600)
    return content


def create_account(root: Pve, pool: str, needs: Iterable[Need]) -> str:
    """Create or update pool, roles, user and token with ``needs``, and return the token's secret.

    An existing token is replaced, because its secret is shown only when a token is created.
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


@click.command()
@click.option("--lab", required=True, help="Name of the lab, and of its pool.")
@click.option("--state", type=click.Path(path_type=Path), required=True, help="State folder of the endpoint.")
@click.option("--management", required=True, help="Address of the node on its management bridge.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Number of nodes.")
def main(lab: str, state: Path, management: str, nodes: int) -> None:
    """Start the local endpoint of a lab, and create the lab's account on it."""
    with one_line_errors(LabError):
        try:
            start(lab, state, management, nodes)
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)


if __name__ == "__main__":
    main()
