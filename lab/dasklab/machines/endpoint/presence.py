"""Check that the lab exists and its machines run, before a command needs them. The check starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dasklab.errors import LabError
from dasklab.machines.inventory.ansible_inventory import Inventory
from dasklab.machines.inventory.endpoint import url_of

UP_HINT = "to create and start what is missing: dasklab up"


def no_lab() -> LabError:
    """Return the error for a lab that was never created."""
    return LabError("there is no lab yet", "to create it: dasklab up")


def not_running(names: Sequence[str], lab: Inventory) -> LabError:
    """Return the error for machines of the inventory that are not running."""
    if len(names) == len(lab.hosts()):
        return LabError("no machine of this lab is running", UP_HINT)
    verb = "is" if len(names) == 1 else "are"
    return LabError(f"the lab differs from the inventory: {', '.join(names)} {verb} not running", UP_HINT)


def never_started(lab: Inventory) -> bool:
    """Return whether the lab has a local endpoint that was never started. Such a lab has no machines."""
    host = lab.hosts()[0]
    if not lab.has(host, "endpoint_start"):
        return False
    try:
        lab.value(host, "endpoint_account")  # written at the end of the first start
    except LabError:
        return True
    return False


def endpoint_name(lab: Inventory) -> str:
    """Return the text that messages show for the endpoint: its URL, or why there is none."""
    host = lab.hosts()[0]
    if not lab.has(host, "proxmox"):
        return "none (machines that exist already)"
    if never_started(lab):
        return "local, not started yet"
    settings = lab.value(host, "proxmox")
    return url_of(str(settings["host"]), settings.get("port", 8006))


def require_endpoint(lab: Inventory) -> None:
    """Refuse a lab whose endpoint does not answer.

    Raises:
        LabError: the endpoint does not answer, or it is a local one that was never started or has stopped.
    """
    if lab.has(lab.hosts()[0], "proxmox"):
        running(lab)


def require_machines(lab: Inventory, *names: str) -> None:
    """Refuse a lab if none of the machines ``names`` is running. The default is all machines of the lab.

    Raises:
        LabError: none of them is running.
    """
    names = names or tuple(lab.hosts())
    if not lab.has(lab.hosts()[0], "proxmox"):
        return
    if len(missing := stopped(lab, names)) == len(names):
        raise not_running(missing, lab)


def stopped(lab: Inventory, names: Sequence[str]) -> list[str]:
    """Return which of the machines ``names`` are not running."""
    vmids = running(lab)
    return [name for name in names if lab.value(name, "guest")["vmid"] not in vmids]


def running(lab: Inventory) -> set[int]:
    """Return the VMIDs of all guests that are running on the lab's nodes.

    Raises:
        LabError: the endpoint was never started or does not answer, or a node does not exist or is down.
    """
    from dasklab.machines.endpoint.api_errors import TransientError
    from dasklab.machines.endpoint.guest_kinds import BY_PATH
    from dasklab.machines.endpoint.observe import check_nodes
    from dasklab.machines.endpoint.proxmox import Pve
    from dasklab.machines.inventory.endpoint import Endpoint

    if never_started(lab):
        raise no_lab()
    pve = Pve(Endpoint.from_inventory(lab.value(lab.hosts()[0], "proxmox")))
    nodes = {lab.value(host, "guest")["node"] for host in lab.hosts()}
    try:
        check_nodes(pve, sorted(nodes))
        records = [record for node in nodes for api in BY_PATH for record in pve.api.nodes(node)(api).get()]
    except TransientError:
        if not lab.has(lab.hosts()[0], "endpoint_start"):
            raise
        name = lab.value(lab.hosts()[0], "lab_name")
        raise LabError(
            f"the local endpoint of lab {name!r} is not running", "to start it: dasklab up"
        ) from None
    return {int(record["vmid"]) for record in records if record.get("status") == "running"}
