"""The output of a playbook: equal failures are printed once, and a full disk costs one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dasklab.paths import PLAYBOOKS
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


SUCCESS = """
- name: Work
  hosts: client
  gather_facts: false
  tasks:
    - {name: First, ansible.builtin.command: "true"}
    - {name: Second, ansible.builtin.command: "true"}
"""


@pytest.mark.parametrize("cache", ["cache", "a-file"])
def test_full_disk_under_the_log_is_one_line(tmp_path: Path, cache: str) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "book.yml").write_text(SUCCESS)
    (tmp_path / "a-file").touch()
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_LOG_PATH": "/dev/full",
        "DASKLAB_CACHE": str(tmp_path / cache),
    }
    argv = [str(program), "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "book.yml")]
    process = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert process.returncode == 0
    assert "Traceback" not in process.stderr + process.stdout
    assert process.stderr.splitlines() == [
        "[WARNING]: the log is incomplete: /dev/full: No space left on device"
    ]
    assert "1 host, changed=2, failed=0" in process.stdout


STOP = """
import os
from ansible.executor.process.worker import WorkerProcess
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = "{name: stop, type: notification, short_description: stop, version_added: '1'}"

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "notification", "stop"

    def v2_playbook_on_start(self, playbook):
        close, run = WorkerProcess.close, WorkerProcess.run
        number = int(os.environ["STOP"])
        def close_and_stop(worker):
            close(worker)
            os.kill(os.getpid(), number)

        def stop_and_run(worker):  # in the fork, which still has the handlers of its parent
            if worker._host.name == "worker-1":
                os.kill(os.getppid(), number)
                os.kill(os.getpid(), number)
            run(worker)

        if os.environ["MOMENT"] == "close":
            WorkerProcess.close = close_and_stop
        elif os.environ["MOMENT"] == "hook":
            os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), number))
        else:
            WorkerProcess.run = stop_and_run
"""
SAME_WORKER_TWICE = """
- name: Work
  hosts: all
  gather_facts: false
  strategy: ansible.builtin.linear
  tasks:
    - {name: First, ansible.builtin.command: "true"}
    - {name: Second, ansible.builtin.command: "true"}
"""


@pytest.mark.parametrize("moment", ["close", "fork", "hook"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 99)])
def test_a_stop_while_ansible_replaces_a_worker_is_no_traceback(
    number: signal.Signals, status: int, moment: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "book.yml").write_text(SAME_WORKER_TWICE)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "stop.py").write_text(STOP)
    settings = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": f"{PLAYBOOKS / 'callback_plugins'}:{tmp_path / 'plugins'}",
        "ANSIBLE_FORKS": "1" if moment == "close" else "5",
        "DASKLAB_CACHE": str(tmp_path),
        "STOP": str(int(number)),
        "MOMENT": moment,
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "book.yml")]
    argv += ["--limit", "client" if moment == "close" else "all"]
    environment = os.environ | settings
    process = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert moment != "close" or "First: " in process.stdout
    assert "bug" not in process.stderr and "Traceback" not in process.stderr
    assert process.returncode == status
