"""Refuses an inventory without a lab. Ansible itself would end such a play successfully."""

from __future__ import annotations

from collections.abc import Callable

from ansible.errors import AnsibleError
from dasklab.machines.inventory.groups import missing_group


def require_lab(hosts: str, groups: dict[str, list[str]]) -> str:
    """Return ``hosts``, the pattern of a play, if the inventory has the groups of a lab."""
    if missing := missing_group(groups):
        raise AnsibleError(f"the inventory {missing}; inventory/hosts.yml shows the groups that a lab has")
    return hosts


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"require_lab": require_lab}
