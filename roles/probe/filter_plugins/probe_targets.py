"""What role probe knows of its targets: their addresses, and whether something was measured to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError


def probe_addresses(targets: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the address of each target that the inventory knows and has an address for.

    It is the one on the link under test, or else the one that Ansible uses.
    """
    variables_by_name = {target: hostvars[target] for target in targets if target in hostvars}
    addresses = {
        target: variables.get("lab_address") or variables.get("ansible_host")
        for target, variables in variables_by_name.items()
    }
    return {target: str(address) for target, address in addresses.items() if address}


def probe_measured(
    targets: Sequence[str], rtt: Sequence[Mapping[str, Any]], throughput: Mapping[str, Any]
) -> bool:
    """Return True if a ping or a run of iperf3 came back from every target.

    Raises:
        AnsibleFilterError: naming the others, with what iperf3 said.
    """
    measured = {ping["dst"] for ping in rtt if ping["samples_ms"]}
    measured |= {run["dst"] for run in throughput["throughput"]}
    silent = [target for target in targets if target not in measured]
    if silent:
        errors = dict.fromkeys(error["error"] for error in throughput["errors"] if error["dst"] in silent)
        raise AnsibleFilterError(f"nothing was measured to {', '.join(silent)}: {'; '.join(errors)}")
    return True


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"probe_addresses": probe_addresses, "probe_measured": probe_measured}
