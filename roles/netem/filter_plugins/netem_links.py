"""The filter ``needs_netem``: what role netem must know of its links before anything is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

DOCUMENTATION = """
name: needs_netem
short_description: Whether links need netem in the host's kernel
description:
  - A rate limit alone needs no netem. A list that is not given needs none.
options:
  _input:
    description: The links as in C(netem_links).
    type: list
    required: true
author: [dasklab]
"""
EXAMPLES = """
when: netem_links | needs_netem
"""
RETURN = """
_value:
  description: Whether one of them needs it.
  type: bool
"""
WITHOUT_NETEM = ("rate_mbit", "direction", "peer", "policer")


def needs_netem(links: Sequence[Mapping[str, Any]] | None) -> bool:
    """Return whether links do anything for which the kernel needs netem."""
    return any(value for link in links or () for key, value in link.items() if key not in WITHOUT_NETEM)


class FilterModule:
    """The filter by its name, as Ansible asks for it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"needs_netem": needs_netem}
