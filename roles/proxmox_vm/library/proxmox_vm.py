#!/usr/bin/python
"""The documentation of ``proxmox_vm``; the work is done by the action plugin of that name."""

DOCUMENTATION = r"""
module: proxmox_vm
short_description: The lab's machines on a Proxmox VE endpoint
description:
  - Compares the lab that the inventory describes with what the endpoint has, and makes the difference.
  - Creates the lab's bridge, template and linked clones; sets size, NICs, addresses and key; starts them.
  - Changes and removes only VMs that carry the lab's tag. A foreign VM on a wanted VMID is refused.
  - In check mode, and with C(--diff), the API calls are shown and not made.
options:
  endpoint:
    description: Where the API is and whose token asks (host, port, user, token_id, ca_file, verify).
    type: dict
    required: true
  token_secret:
    description: The token's secret.
    type: str
    required: true
  lab:
    description: The wanted lab, as C(dasklab.machines.inventory.topology.Lab).
    type: dict
    required: true
  guests:
    description: Per machine, another kind, C(vm) or C(container).
    type: dict
    default: {}
  nics:
    description: Per machine, another model or rate_mbit for its lab link.
    type: dict
    default: {}
  fresh:
    description: In check mode, plan for an endpoint that does not exist yet. Nothing is asked of it.
    type: bool
    default: false
  state:
    description: Whether the lab is there and running, or gone.
    type: str
    choices: [started, absent]
    default: started
  parallel:
    description: How many machines are worked on at once.
    type: int
    default: 4
attributes:
  check_mode: {support: full, description: Shows the calls without making them.}
  diff_mode: {support: full, description: Prints the calls.}
author: [dasklab]
"""

EXAMPLES = r"""
- name: The lab's machines, with an emulated E1000 on one worker
  proxmox_vm:
    endpoint: "{{ proxmox_vm_endpoint }}"
    token_secret: "{{ proxmox_vm_token_secret }}"
    lab: "{{ proxmox_vm_lab }}"
    nics: {worker-1: {model: e1000}}
"""

RETURN = r"""
calls: {description: The API calls of the plan as text, type: list, returned: always}
changes: {description: "The same calls: method, path, params, why", type: list, returned: always}
created: {description: Names of machines that were made anew, type: list, returned: always}
starting:
  description: Names of machines that were started, now or so recently that they may not answer yet
  type: list
  returned: always
guests: {description: "Per machine: vmid, node, status, nets after the run", type: dict, returned: always}
"""
