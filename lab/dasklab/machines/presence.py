"""Whether there is a lab: asked of the endpoint before a command needs one, without starting anything."""

from __future__ import annotations

from dasklab.errors import LabError
from dasklab.machines.inventory import Inventory

NO_LAB = LabError(
    "there is no lab yet: it has no machines", "run `dasklab up` first: it makes and starts them"
)


def never_started(lab: Inventory) -> bool:
    """Whether the lab's own endpoint has never been started, so that nothing exists."""
    host = lab.hosts()[0]
    if not lab.has(host, "endpoint_start"):
        return False
    try:
        lab.value(host, "endpoint_account")  # what starting it ends with
    except LabError:
        return True
    return False


def endpoint_name(lab: Inventory) -> str:
    """The endpoint as messages show it."""
    host = lab.hosts()[0]
    if not lab.has(host, "proxmox"):
        return "none (machines that exist already)"
    if never_started(lab):
        return "local, not started yet"
    settings = lab.value(host, "proxmox")
    return f"https://{settings['host']}:{settings.get('port', 8006)}"


def require_endpoint(lab: Inventory) -> None:
    """Refuse a lab whose own endpoint was never started or does not run.

    Raises:
        LabError: saying which of the two.
    """
    if lab.has(lab.hosts()[0], "proxmox"):
        running(lab)


def require_machines(lab: Inventory, *names: str) -> None:
    """Refuse a lab of which none of these machines runs; of all machines if none is named.

    Raises:
        LabError: saying which, and how to get them.
    """
    names = names or tuple(lab.hosts())
    if not lab.has(lab.hosts()[0], "proxmox"):
        return
    if set(absent(lab, names)) == set(names):
        which = f"{names[0]} does not run" if len(names) == 1 else "none of this lab's machines runs"
        raise LabError(which, NO_LAB.hint)


def absent(lab: Inventory, names: tuple[str, ...]) -> list[str]:
    """Those of the lab's machines that do not run."""
    vmids = running(lab)
    return [name for name in names if lab.value(name, "guest")["vmid"] not in vmids]


def running(lab: Inventory) -> set[int]:
    """VMIDs of what runs on the lab's nodes.

    Raises:
        LabError: the endpoint was never started, or does not answer.
    """
    from dasklab.machines.answers import TransientError
    from dasklab.machines.endpoint import Endpoint
    from dasklab.machines.kinds import BY_API
    from dasklab.machines.proxmox import Pve

    if never_started(lab):
        raise NO_LAB
    pve = Pve(Endpoint.from_inventory(lab.value(lab.hosts()[0], "proxmox")))
    nodes = {lab.value(host, "guest")["node"] for host in lab.hosts()}
    try:
        records = [record for node in nodes for api in BY_API for record in pve.api.nodes(node)(api).get()]
    except TransientError:
        if not lab.has(lab.hosts()[0], "endpoint_start"):
            raise
        name = lab.value(lab.hosts()[0], "lab_name")
        raise LabError(f"the endpoint of lab {name!r} does not run", "`dasklab up` starts it again") from None
    return {int(record["vmid"]) for record in records if record.get("status") == "running"}
