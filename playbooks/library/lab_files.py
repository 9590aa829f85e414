#!/usr/bin/python
"""The documentation of ``lab_files``; the work is done by the action plugin of that name."""

DOCUMENTATION = r"""
module: lab_files
short_description: Write several files with one or two shell commands, without Python on the host
description:
  - Brings every file to its content and mode; directories that are missing are made.
  - Compares digests and modes by one command; what differs is sent as one tar archive.
  - On an emulated guest a module that starts Python costs seconds, and C(ansible.builtin.copy) starts three
    for each file.
options:
  files:
    description: What to write.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: "Absolute path, or one below I(directory).", type: path, required: true}
      content: {description: "The whole text of the file; this, I(src) or I(template).", type: str}
      src: {description: "A file of the controller, found as by C(copy).", type: path}
      template: {description: "A template of the controller, found as by C(template).", type: path}
      mode: {description: Permissions as an octal string., type: str, default: "0644"}
  directory:
    description: Where paths that are not absolute begin.
    type: path
    default: /
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [dasklab]
"""

EXAMPLES = r"""
- name: Two files
  lab_files:
    files:
      - {path: /etc/dask/dasklab.yaml, content: "distributed: {}\n"}
      - {path: /opt/dasklab/bin/dasklab_link.py, src: dasklab_link.py, mode: "0755"}
"""

RETURN = r"""
written: {description: Paths of the files that were not as wanted., type: list, returned: always}
replaced: {description: Those of them that were there before., type: list, returned: always}
"""
