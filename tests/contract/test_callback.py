"""The output of a playbook: equal failures of several hosts are printed once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from dasklab.paths import SHARE as ROOT

HOSTS = """
all:
  hosts:
    client: {number: 11}
    worker-1: {number: 13}
    worker-2: {number: 14, trouble: "its disk is full"}
  vars: {ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
"""
PLAYBOOK = """
- name: Try
  hosts: all
  gather_facts: false
  tasks:
    - name: Reach it
      ansible.builtin.fail:
        msg: "{{ trouble | default('connect to host 10.77.0.' ~ number ~ ' port 22: No route to host') }}"
"""


def test_equal_failures_of_several_hosts_are_printed_once(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "book.yml").write_text(PLAYBOOK)
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "DASKLAB_CACHE": str(tmp_path)}
    argv = [str(program), "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "book.yml")]
    process = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    failed = process.stdout.partition("\nTry\n")[2].splitlines()[:4]  # hosts answer in any order
    reasons = dict(zip(failed[::2], failed[1::2], strict=True))
    assert reasons.keys() == {"  FAILED  client, worker-1: Reach it", "  FAILED  worker-2: Reach it"}
    assert reasons["  FAILED  worker-2: Reach it"].strip() == "its disk is full"
    shared = reasons["  FAILED  client, worker-1: Reach it"].strip()
    assert re.fullmatch(r"connect to host 10\.77\.0\.1[13] port 22: No route to host", shared)
    assert "3 hosts, changed=0, failed=3" in process.stdout
