"""What identifies a lab's own processes on its node."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dasklab.model.settings.nic import LAB_SLOT, net_key

MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")


def lab_processes(names: Sequence[str], hostvars: Mapping[str, Any], directory: str) -> list[str]:
    """Return words of the command lines of the lab's processes, and the PID namespaces of its containers.

    QEMU has its guest's MAC in its command line, ansible-playbook the trial's ``directory``.
    """
    guests = (hostvars["localhost"].get("proxmox_vm_result") or {}).get("guests") or {}
    nets = [str(guests.get(name, {}).get("nets", {}).get(net_key(LAB_SLOT), "")) for name in names]
    answers = [hostvars[name]["trial_answer"]["answer"] for name in names]
    namespaces = [answer["host.describe"]["pid_namespace"] for answer in answers]
    return [*(mac[0] for net in nets if (mac := MAC.search(net))), *filter(None, namespaces), directory]


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"lab_processes": lab_processes}
