"""The lab as its inventory has it, for experiments: what their settings are laid over."""

from __future__ import annotations

from lab.machines.inventory import Inventory
from lab.model.nic import LAB_SLOT, Card
from lab.model.strict import validate
from lab.model.trial import Setup


def setup_of(inventory: Inventory) -> Setup:
    """Hosts, their lab NICs and offloads; machines that exist already have NICs that nobody here makes.

    Raises:
        LabError: a value of the inventory is missing or not allowed.
    """
    hosts = inventory.hosts()
    made = bool(inventory.hosts("hypervisors"))
    return Setup(
        hosts=tuple(hosts),
        guests={host: inventory.value(host, "guest")["kind"] for host in hosts} if made else {},
        nics={host: _card(inventory, host) for host in hosts} if made else {},
        offloads={host: found for host in hosts if (found := inventory.optional(host, "guest_offloads"))},
        bridge=made,
    )


def _card(inventory: Inventory, host: str) -> Card:
    nic = inventory.value(host, "guest")["nics"][LAB_SLOT]
    where = f"inventory {inventory.path}: {host}"
    return validate(Card, {key: nic[key] for key in Card.model_fields if key in nic}, where)
