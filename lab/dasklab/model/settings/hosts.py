"""The lab's hosts by name, and the aliases that stand for several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dasklab.errors import LabError, did_you_mean
from dasklab.model.forms.strict import Strict

S = TypeVar("S", bound=Strict)


def host_names(workers: int) -> list[str]:
    """Return the names of client, scheduler and so many workers, as in the inventory."""
    return ["client", "scheduler", *(f"worker-{i + 1}" for i in range(workers))]


def expand_aliases(by_host: Mapping[str, S], workers: int, where: str) -> dict[str, S]:
    """Replace the aliases ``cluster`` (scheduler and workers) and ``workers`` by host names.

    A host may be named by itself and by an alias; then its own values override those of the alias, key by
    key.

    Args:
        by_host: settings by host or alias.
        workers: the number of workers.
        where: the place in the file, for messages.

    Raises:
        LabError: a name is neither a host nor an alias.
    """
    names = host_names(workers)
    aliases = {"cluster": names[1:], "workers": names[2:]}
    for name in by_host:
        if name not in aliases and name not in names:
            allowed = [*names, *aliases]
            hint = did_you_mean(name, allowed)
            raise LabError(f"{where}.{name}: no such host; allowed: {', '.join(allowed)}{hint}")
    order = ["cluster", "workers", *names]
    expanded: dict[str, S] = {}
    for name in sorted(by_host, key=order.index):
        for host in aliases.get(name, [name]):
            own = by_host[name].model_dump(exclude_unset=True)
            general = expanded[host].model_dump(exclude_unset=True) if host in expanded else {}
            expanded[host] = type(by_host[name]).model_validate({**general, **own})
    return expanded
