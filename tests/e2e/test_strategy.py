"""Playbooks do the same through Mitogen as by Ansible's own strategy: each case runs under both."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from dasklab.console.lab.playbooks import UNREACHABLE
from dasklab.paths import SHARE as ROOT

from tests.e2e.conftest import BIN
from tests.ports import free_port, listens
from tests.waiting import PATIENCE_S, until

STRATEGIES = ("linear", "mitogen_or_linear")
HOSTS = ("a", "b", "c")
CASES = {  # tasks of a play on three hosts; TMP is a folder of the case
    "any_errors_fatal": """
        - ansible.builtin.command: test {{ inventory_hostname }} != b
        - ansible.builtin.file: {path: "TMP/{{ inventory_hostname }}", state: touch, mode: "0644"}
    """,
    "block_rescue_always": """
        - block:
            - ansible.builtin.command: test {{ inventory_hostname }} != b
            - ansible.builtin.file: {path: "TMP/ran-{{ inventory_hostname }}", state: touch, mode: "0644"}
          rescue:
            - ansible.builtin.file: {path: "TMP/rescued-{{ inventory_hostname }}", state: touch, mode: "0644"}
            - ansible.builtin.fail: {msg: the end}
          always:
            - ansible.builtin.file: {path: "TMP/always-{{ inventory_hostname }}", state: touch, mode: "0644"}
    """,
    "meta": """
        - ansible.builtin.meta: end_host
          when: inventory_hostname == 'a'
        - ansible.builtin.file: {path: "TMP/{{ inventory_hostname }}", state: touch, mode: "0644"}
        - ansible.builtin.meta: flush_handlers
        - ansible.builtin.meta: end_play
        - ansible.builtin.file: {path: TMP/never, state: touch, mode: "0644"}
    """,
    "delegated_once": """
        - ansible.builtin.command: hostname
          delegate_to: localhost
          run_once: true
          register: name
          check_mode: false
        - ansible.builtin.copy: {content: "{{ name.rc }}", dest: "TMP/{{ inventory_hostname }}", mode: "0644"}
    """,
    "files": """
        - ansible.builtin.copy: {content: "one\\n", dest: "TMP/{{ inventory_hostname }}", mode: "0640"}
        - ansible.builtin.stat: {path: "TMP/{{ inventory_hostname }}"}
          register: file
        - ansible.builtin.command: {cmd: cat, stdin: "{{ file.stat.exists | default(false) }}"}
        - ansible.builtin.script: {cmd: script.sh word}
        - ansible.builtin.fetch: {src: "TMP/{{ inventory_hostname }}", dest: TMP/fetched/, flat: true}
    """,
}


def play(folder: Path, tasks: str) -> Path:
    """Write a playbook of a case and its inventory, and return the playbook."""
    folder.mkdir(parents=True, exist_ok=True)
    python = {"ansible_connection": "local", "ansible_python_interpreter": str(BIN / "python")}
    (folder / "hosts.yml").write_text(str({"all": {"hosts": {name: {} for name in HOSTS}, "vars": python}}))
    (folder / "script.sh").write_text("#!/bin/sh\necho $1\n")
    head = "- hosts: all\n  gather_facts: false\n  any_errors_fatal: true\n  tasks:\n"
    body = textwrap.indent(textwrap.dedent(tasks).replace("TMP", str(folder / "tmp")), "    ")
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "play.yml").write_text(head + body)
    return folder / "play.yml"


def start(playbook: Path, strategy: str, *options: str) -> subprocess.Popen[str]:
    """Start a playbook in its own process group, as a terminal does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {
        "ANSIBLE_STRATEGY": strategy,
        "ANSIBLE_STRATEGY_PLUGINS": str(ROOT / "playbooks" / "strategy_plugins"),
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
    }
    argv = [str(BIN / "ansible-playbook"), "-i", "hosts.yml", playbook.name, *options]
    return subprocess.Popen(
        argv,
        cwd=playbook.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(child: subprocess.Popen[str]) -> str:
    """Return a playbook's output when it ends; one that hangs is killed, and the test fails."""
    try:
        return child.communicate(timeout=PATIENCE_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(child.communicate()[0]) from None


def outcome(playbook: Path, strategy: str, *options: str) -> tuple[int, list[str], list[str], list[str]]:
    """Run a playbook: exit status, recap, differences shown, and the files that it left."""
    child = start(playbook, strategy, *options)
    output = finish(child)
    recap = [" ".join(line.split()) for line in output.splitlines() if re.search(r"ok=\d+ ", line)]
    differences = sorted(line for line in output.splitlines() if re.match(r"[+-]\w", line))
    assert recap, output
    folder = playbook.parent / "tmp"
    return (
        child.returncode,
        recap,
        differences,
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
    )


@pytest.mark.parametrize("options", [(), ("--check", "--diff")], ids=["run", "check"])
@pytest.mark.parametrize("case", CASES)
def test_both_strategies_do_the_same(tmp_path: Path, case: str, options: tuple[str, ...]) -> None:
    outcomes = [
        outcome(play(tmp_path / strategy, CASES[case]), strategy, *options) for strategy in STRATEGIES
    ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ctrl_c_ends_the_playbook(tmp_path: Path, strategy: str) -> None:
    seconds = f"4{os.getpid()}"
    tasks = f"- ansible.builtin.shell: touch TMP/{{{{ inventory_hostname }}}}; exec sleep {seconds}"
    child = start(play(tmp_path, tasks), strategy)
    # Through Mitogen, hosts that are all this machine share one Python, which runs one command at a time.
    # Without it, wait for all: ansible-core never ends a worker that it forks at the moment of a Ctrl-C.
    expected = len(HOSTS) if strategy == "linear" else 1
    until(lambda: len(list(sleeping(seconds))) == expected, "the commands")
    os.killpg(child.pid, signal.SIGINT)
    begin = time.monotonic()
    finish(child)
    assert child.returncode != 0
    assert time.monotonic() - begin < 20
    if strategy != "linear":  # Mitogen's Python is in a session of its own, like one at the end of ssh
        for pid in sleeping(seconds):
            os.kill(int(pid), signal.SIGTERM)
    until(lambda: not list(sleeping(seconds)), "the end of the commands")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_host_that_does_not_answer_ends_the_playbook(tmp_path: Path, strategy: str) -> None:
    playbook = play(tmp_path, "- ansible.builtin.command: sleep 1")
    hosts = (tmp_path / "hosts.yml").read_text()
    nobody = str({"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1})
    (tmp_path / "hosts.yml").write_text(hosts.replace("'b': {}", f"'b': {nobody}"))
    child = start(playbook, strategy)
    output = finish(child)
    assert child.returncode != 0
    assert re.search(r"^b .* unreachable=1 ", output, re.MULTILINE), output


async def serve_ssh(port: int) -> None:
    """Serve ssh, with a new host key, to whoever reaches this machine's loopback."""

    class OpenServer(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return False

    async def copy(source: Any, target: Any) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()

    async def send(source: Any, target: Any) -> None:
        await copy(source, target)
        target.write_eof()

    async def run(process: Any) -> None:
        """Run a command. Its status precedes the end of its output, at which a shared connection closes."""
        shell = await asyncio.create_subprocess_shell(process.command, stdin=-1, stdout=-1, stderr=-1)
        sending = asyncio.create_task(send(process.stdin, shell.stdin))
        await asyncio.gather(copy(shell.stdout, process.stdout), copy(shell.stderr, process.stderr))
        sending.cancel()
        process.exit(await shell.wait())

    key = asyncssh.generate_private_key("ssh-ed25519")
    options = {"server_host_keys": [key], "process_factory": run, "encoding": None}
    await asyncssh.create_server(OpenServer, "127.0.0.1", port, **options)
    await asyncio.Event().wait()


@contextmanager
def ssh_server() -> Iterator[int]:
    """Run an ssh server in a process, and yield its port."""
    port = free_port()
    program = f"from {__name__} import *; asyncio.run(serve_ssh({port}))"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as server:
        try:
            until(lambda: listens(port), "the ssh server")
            yield port
        finally:
            server.kill()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_unknown_host_key_is_learnt_where_the_inventory_says_so_and_a_changed_one_refused(
    tmp_path: Path, strategy: str
) -> None:
    known = tmp_path / "known_hosts"
    common = f"-F /dev/null -o UserKnownHostsFile={known} -o HostKeyAlias=b -o HashKnownHosts=no"
    playbook = play(tmp_path, "- ansible.builtin.command: 'true'")

    def status(port: int, checking: str) -> int:
        over_ssh = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": port}
        over_ssh |= {"ansible_ssh_common_args": common + checking, "ansible_ssh_pipelining": True}
        hosts = {"b": {**over_ssh, "ansible_python_interpreter": str(BIN / "python")}}
        (tmp_path / "hosts.yml").write_text(str({"all": {"hosts": hosts}}))
        child = start(playbook, strategy)
        finish(child)
        return child.returncode

    with ssh_server() as port:
        assert status(port, "") == UNREACHABLE
        assert not known.exists()
        assert status(port, " -o StrictHostKeyChecking=accept-new") == 0
        key = known.read_text()
        assert key.startswith("b ssh-ed25519 ")
    with ssh_server() as port:
        assert status(port, " -o StrictHostKeyChecking=accept-new") == UNREACHABLE
    assert known.read_text() == key


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_host_that_dies_during_a_task_ends_the_playbook(tmp_path: Path, strategy: str) -> None:
    """The host's Python dies, as it does with the host: with Mitogen the lasting one, else the module's."""
    child = start(play(tmp_path, "- ansible.builtin.shell: kill -KILL $PPID"), strategy)
    output = finish(child)
    assert child.returncode != 0
    assert re.search(r" (unreachable|failed)=1 ", output), output


def sleeping(seconds: str) -> Iterator[str]:
    """Yield the PIDs of the commands of a test."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                yield path.parent.name
        except OSError:
            continue


def test_without_mitogen_one_line_says_so(tmp_path: Path) -> None:
    """A module of that name that cannot be imported stands for a missing package."""
    (tmp_path / "hidden" / "ansible_mitogen").mkdir(parents=True)
    (tmp_path / "hidden" / "ansible_mitogen" / "__init__.py").write_text("raise ImportError('hidden')\n")
    playbook = play(tmp_path / "case", CASES["meta"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
        child = start(playbook, "mitogen_or_linear")
    output = finish(child)
    assert child.returncode == 0
    assert (
        output.count("Tasks take longer than they could: the Python package mitogen is not installed.") == 1
    )
