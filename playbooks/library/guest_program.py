#!/usr/bin/python
"""Let the guest program act in the Python that runs this module.

The command ``dasklab-guest`` would start another Python, which takes an emulated machine about a second.
"""

from __future__ import annotations

import json
import sys

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: guest_program
short_description: Let a host of the lab carry out an order, list its files, or reset itself
version_added: "0.2"
description:
  - Does what the command C(dasklab-guest) of role C(base) does, without starting another Python.
  - C(outline) asks no host. It returns a trial without the orders. Its phases have the names of their hosts,
    guests, NICs and packages.
options:
  action:
    description: What to do.
    type: str
    choices: [carry-out, files, reset, outline]
    required: true
  trial:
    description: Folder of a trial on the controller, for C(carry-out) and C(outline).
    type: path
  phase:
    description: Name of the phase whose order to carry out.
    type: str
  order:
    description: The order to carry out, as in C(dasklab_guest.order); read from the trial's folder.
    type: json
attributes:
  check_mode: {support: none, description: Runs in check mode, too.}
  diff_mode: {support: none, description: Prints no difference.}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Reset hosts
  guest_program:
    action: reset
"""

RETURN = r"""
answer: {description: "The guest program's answer, as the command prints it", type: raw, returned: success}
"""

LIBRARY = "/opt/dasklab/lib"


def main() -> None:
    """Act, and return the answer or the problem."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["carry-out", "files", "reset"], "required": True},
            "order": {"type": "json"},
        },
        required_if=[("action", "carry-out", ["order"])],
    )
    if LIBRARY not in sys.path:  # Mitogen keeps one Python for all tasks
        sys.path.insert(0, LIBRARY)
    try:
        from dasklab_guest import order
        from dasklab_guest.common import HostError, UnsupportedError
    except ImportError as error:
        module.fail_json(msg=f"no guest program here ({error}); to install it: dasklab up --only configure")
    actions = {
        "carry-out": lambda: order.carry_out(json.loads(module.params["order"])),
        "files": order.files,
        "reset": order.reset,
    }
    try:
        answer = actions[module.params["action"]]()
    except UnsupportedError as error:
        module.fail_json(msg=f"unsupported: {error}")
    except (HostError, ValueError, TypeError) as error:
        module.fail_json(msg=f"dasklab-guest: {error}")
    module.exit_json(changed=module.params["action"] == "carry-out", answer=answer)


if __name__ == "__main__":
    main()
