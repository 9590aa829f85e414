#!/usr/bin/python
"""The documentation of ``lab_command``; the work is done by the action plugin of that name."""

DOCUMENTATION = r"""
module: lab_command
short_description: Run a command and keep its answer, JSON or lines, without Python on the host
description:
  - Runs a shell command and keeps what it prints, parsed.
  - What is no JSON fails the task in one line, as does an exit status other than 0; status 3 is how the lab's
    programs say that a host cannot do what is asked.
  - In check mode nothing is run.
options:
  cmd:
    description: The command, for the host's shell.
    type: str
    required: true
  answer:
    description: What the command prints, one JSON document or lines of text.
    type: str
    choices: [json, lines]
    default: json
attributes:
  check_mode: {support: none}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Read the host's counters
  lab_command:
    cmd: /opt/dasklab/bin/dasklab_host.py show
  register: guest_shown
"""

RETURN = r"""
answer: {description: What the command said, type: raw, returned: success}
asked_s: {description: When it was sent; seconds by the controller's clock, type: float, returned: always}
answered_s: {description: When its answer was there; seconds by the same clock, type: float, returned: always}
rc: {description: Its exit status, type: int, returned: always}
said: {description: What a command that failed said before its last line, type: list, returned: failure}
"""
