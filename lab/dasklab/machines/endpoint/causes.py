"""Merge errors and warnings of several machines that have the same cause into one line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dasklab.errors import LabError
from dasklab.machines.endpoint.change import Chain
from dasklab.model.forms.failure_text import ADDRESS, common_text

NETWORK = re.compile(r"(net|ipconfig)\d+$")


def identifiers(chain: Chain) -> set[str]:
    """Return the words that only this chain's machine has in messages: node, VMID, name, addresses."""
    places = [re.match(r"/?nodes/([^/]+)(?:/(?:qemu|lxc)/([0-9]+))?", change.path) for change in chain]
    values = [change.params.get(key) for change in chain for key in ("vmid", "newid", "name", "hostname")]
    words = {word for place in places if place for word in place.groups() if word}
    networks = [str(value) for change in chain for key, value in change.params.items() if NETWORK.match(key)]
    addresses = {address for text in networks for address in re.findall(ADDRESS, text)}
    return words | addresses | {str(value) for value in values if value}


def merge(messages: Iterable[tuple[str, str]]) -> list[str]:
    """Return the first message of each cause, with the number of the others.

    Args:
        messages: pairs of a text that all messages of a cause have in common and a message.
    """
    by_cause: dict[str, list[str]] = {}
    for key, message in messages:
        by_cause.setdefault(key, []).append(message)
    return [
        first + (f" (and {len(others)} more for the same cause)" if others else "")
        for first, *others in by_cause.values()
    ]


def merged_error(step: str, failures: list[tuple[set[str], LabError]]) -> LabError:
    """Return one error for all failures of a step.

    Args:
        step: the step's name.
        failures: errors, each with the identifiers of its machine.
    """
    words = set().union(*(own for own, _ in failures))  # a machine's name may be a word of all their messages
    messages = merge(
        (common_text(getattr(error, "cause", error.message), words), error.message) for _, error in failures
    )
    return LabError(f"{step}: {'; '.join(messages)}", next((e.hint for _, e in failures if e.hint), None))
