#!/usr/bin/python
"""The documentation of ``lab_fetch``; the work is done by the action plugin of that name."""

DOCUMENTATION = r"""
module: lab_fetch
short_description: Copy files of a known size from a host, without Python there
description:
  - Copies each file to a directory of the controller, over what is there, and compares its size.
  - C(ansible.builtin.fetch) starts Python on the host for each file, and reads the whole of it twice.
  - In check mode nothing is copied.
options:
  src:
    description: The directory on the host.
    type: str
    required: true
  sizes:
    description: Names of the files there, each with its size in bytes.
    type: dict
    required: true
  dest:
    description: The directory here.
    type: path
    required: true
attributes:
  check_mode: {support: none}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Fetch the captures
  lab_fetch:
    src: /var/lib/dasklab/capture
    sizes: {capture.pcap: 12345}
    dest: results
"""

RETURN = ""
