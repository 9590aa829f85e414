#!/usr/bin/python
"""The documentation of ``lab_wait``; the work is done by the action plugin of that name."""

DOCUMENTATION = r"""
module: lab_wait
short_description: Wait until a host lets one in, without Python on the host
description:
  - Tries C(true) over the host's connection until that works.
  - C(ansible.builtin.wait_for_connection) starts Python on the host, which costs an emulated guest seconds
    just when all guests start.
options:
  timeout_s:
    description: Give up after so many seconds.
    type: int
    default: 300
attributes:
  check_mode: {support: full}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Wait for ssh
  lab_wait:
"""

RETURN = ""
