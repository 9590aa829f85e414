"""A strategy that runs tasks through Mitogen where it can, and is Ansible's own ``linear`` elsewhere."""

from __future__ import annotations

from typing import Any

from ansible.release import __version__ as core_version
from ansible.utils.display import Display

DOCUMENTATION = """
name: mitogen_or_linear
short_description: Mitogen where it is installed and tried, else Ansible's linear
version_added: "0.2"
description:
  - Mitogen keeps one Python per host for a whole play, which makes plain roles several times faster on
    slow hosts.
  - Without the package C(mitogen), and with a release of ansible-core that was not tried with it, the
    strategy is C(linear) and prints one line. Tasks and results are the same.
author: [dasklab]
"""

ACCEPT_NEW = "StrictHostKeyChecking=accept-new"
TRIED = ("2.19",)  # releases of ansible-core; docs/how-to/roles.md says what was tried


def problem(version: str) -> str | None:
    """Return why Mitogen cannot run tasks here, or None."""
    release = ".".join(version.split(".")[:2])
    if release not in TRIED:
        return f"Mitogen was not tried with ansible-core {release}, only with {', '.join(TRIED)}"
    try:
        import ansible_mitogen  # noqa: F401
    except ImportError:
        return "the Python package mitogen is not installed"
    return None


def accept_new_host_keys() -> None:
    """Let an inventory's ``StrictHostKeyChecking=accept-new`` count, as it does without Mitogen.

    ssh takes the first value of an option, and Mitogen puts ``yes`` before the inventory's arguments. So it
    would never reach a guest whose key is not known: a command was stopped before it waited for the guest,
    or the file of keys was lost. A key that has changed is refused in any case.
    """
    import mitogen.ssh

    command = mitogen.ssh.Connection.get_boot_command

    def get_boot_command(connection: Any) -> list[str]:
        words: list[str] = command(connection)
        is_asked_for = ACCEPT_NEW in (connection.options.ssh_args or ())
        return [
            ACCEPT_NEW if is_asked_for and word == "StrictHostKeyChecking yes" else word for word in words
        ]

    mitogen.ssh.Connection.get_boot_command = get_boot_command


def choose(version: str) -> Any:
    """Return the class of the strategy."""
    if reason := problem(version):
        from ansible.plugins.strategy.linear import StrategyModule as Linear

        Display().display(f"Tasks take longer than they could: {reason}.", stderr=True)
        return Linear
    from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule as Mitogen

    accept_new_host_keys()
    return Mitogen


Strategy: Any = choose(core_version)


class StrategyModule(Strategy):  # type: ignore[misc]
    """The chosen strategy under the name that ansible.cfg selects."""
