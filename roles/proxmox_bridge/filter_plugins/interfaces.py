"""Edit one option of one stanza of /etc/network/interfaces, and leave every other character as it is."""

from __future__ import annotations

import re
from collections.abc import Callable

from ansible.errors import AnsibleFilterError


def bridge_ageing(text: str, bridge: str, seconds: int) -> str:
    """Return ``text`` with ``bridge-ageing <seconds>`` in the stanza of ``bridge``.

    Raises:
        AnsibleFilterError: the file has no such stanza.
    """
    lines = text.splitlines(keepends=True)
    begin = next(
        (i for i, line in enumerate(lines) if re.match(rf"iface\s+{re.escape(bridge)}\s", line)), None
    )
    if begin is None:
        raise AnsibleFilterError(f"no bridge {bridge} in the interfaces file")
    end = next((i for i in range(begin + 1, len(lines)) if not re.match(r"\s+\S", lines[i])), len(lines))
    stanza = [line for line in lines[begin:end] if not re.match(r"\s+bridge[-_]ageing\s", line)]
    wanted = f"\tbridge-ageing {seconds}\n"
    if wanted in lines[begin:end] and len(stanza) == end - begin - 1:
        return text
    if not stanza[-1].endswith("\n"):
        stanza[-1] += "\n"
    return "".join([*lines[:begin], *stanza, wanted, *lines[end:]])


class FilterModule:
    """Ansible's way to the function above."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filters by name."""
        return {"bridge_ageing": bridge_ageing}
