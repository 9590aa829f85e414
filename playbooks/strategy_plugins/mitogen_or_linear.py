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


def choose(version: str) -> Any:
    """Return the class of the strategy."""
    if reason := problem(version):
        from ansible.plugins.strategy.linear import StrategyModule as Linear

        Display().display(f"Tasks take longer than they could: {reason}.", stderr=True)
        return Linear
    from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule as Mitogen

    return Mitogen


Strategy: Any = choose(core_version)


class StrategyModule(Strategy):  # type: ignore[misc]
    """The chosen strategy under the name that ansible.cfg selects."""
