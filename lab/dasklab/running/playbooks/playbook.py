"""Start ``ansible-playbook``. No other module starts Ansible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import yaml

from dasklab import extras
from dasklab.errors import LabError
from dasklab.paths import PLAYBOOKS, SHARE, ansible_settings
from dasklab.running.lock import lock
from dasklab.running.playbooks.watchdog import Watchdog

POLL_S = 0.5
STRING_TAG = "tag:yaml.org,2002:str"


class PlaybookEndedError(LabError):
    """Ansible was killed, by us or by someone else, so its ``always`` blocks did not run."""


def command(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs ``playbooks/<playbook>``. Pure."""
    program = Path(sys.executable).with_name("ansible-playbook")
    argv = [str(program), "-i", str(inventory), str(PLAYBOOKS / playbook), *options]
    return [*argv, "-e", _as_data(extra_vars)] if extra_vars else argv


def _as_data(extra_vars: Mapping[str, Any]) -> str:
    """Return variables as YAML, with Ansible's tag for text that is no template at each string.

    Ansible would evaluate the braces of a path on this machine.
    """

    class Dumper(yaml.SafeDumper):
        pass

    def represent(dumper: Dumper, text: str) -> yaml.Node:
        # From a tagged "no" or "12" ansible-core 2.19 makes a value of its type. Such words are no templates.
        plain_tag = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        return dumper.represent_scalar("!unsafe" if plain_tag == STRING_TAG else STRING_TAG, text, style='"')

    Dumper.add_representer(str, represent)
    return yaml.dump(dict(extra_vars), Dumper=Dumper, default_flow_style=True, width=10**9).strip()


def run(
    playbook: str,
    inventory: Path,
    extra_vars: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    quiet: bool = False,
    output: IO[str] | None = None,
    limit_s: float | None = None,
) -> int:
    """Run a playbook and return its exit status.

    On Ctrl-C Ansible ends at once, without its ``always`` blocks. The caller must then clear the machines;
    impairments also expire there by themselves.

    Args:
        playbook: name of a file in ``playbooks/``.
        inventory: the inventory to run it on.
        extra_vars: variables that override all others.
        options: further options for ansible-playbook.
        quiet: hide Ansible's output.
        output: where it goes instead of standard output.
        limit_s: stop Ansible after this time.

    Raises:
        LabError: ansible-playbook is not installed.
        PlaybookEndedError: Ansible was killed, exceeded ``limit_s`` or hung. None of its processes is left.
        KeyboardInterrupt: the user stopped it, and Ansible has ended.
    """
    argv = command(playbook, inventory, extra_vars, options)
    if not Path(argv[0]).exists():
        raise extras.not_installed("ansible")
    # Ansible refuses to start in a locale that is not UTF-8, so the user's is overridden.
    environment = {**os.environ, **ansible_settings(inventory), "LC_ALL": "C.UTF-8"}
    # In its own process group, so that Ctrl-C reaches only us and we end Ansible without a traceback.
    group: dict[str, Any] = (
        {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
    )
    with subprocess.Popen(
        argv,
        cwd=SHARE,
        env=environment,
        stdout=subprocess.DEVNULL if quiet else output,
        pass_fds=lock.inheritable(),
        **group,
    ) as process:
        try:
            problem = _wait(process, Watchdog(process.pid, limit_s))
        except KeyboardInterrupt:
            _end(process)
            raise
        if problem:
            _end(process)
            raise PlaybookEndedError(f"{playbook} was stopped: {problem}")
    if process.returncode < 0:
        lock.end_heirs()  # Ansible's workers outlive an Ansible that was killed
        name = signal.Signals(-process.returncode).name
        hint = "if the machine ran out of memory, dmesg shows: Out of memory: Killed process"
        raise PlaybookEndedError(f"{playbook}: ansible-playbook was killed by {name}", hint)
    return process.returncode


def _wait(process: subprocess.Popen[bytes], watchdog: Watchdog) -> str | None:
    """Wait until Ansible ends and return None, or return why it must be stopped."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return None
        if problem := watchdog.problem():
            return problem


def _end(process: subprocess.Popen[bytes], patience_s: float = 10) -> None:
    """End Ansible, which ends its workers and their commands on the controller.

    Only Ansible itself gets the signal: a worker that is just being forked would print a traceback. After a
    second Ctrl-C it is no longer waited for.
    """
    process.terminate()
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(patience_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    lock.end_heirs()
