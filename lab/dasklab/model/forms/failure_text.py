"""What differs between the messages of hosts that fail for the same reason."""

from __future__ import annotations

import re
from collections.abc import Iterable

ADDRESS = r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}|\b\d{1,3}(?:\.\d{1,3}){3}\b"
_PLACEHOLDERS = {
    ADDRESS: "ADDRESS",
    r"(?i)\b(vm|ct|vmid|tap|veth|lock|base|qemu|lxc)([ /-]?)[1-9]\d{2,8}": r"\1\2VMID",
    r":[1-9]\d{2,8}/": ":VMID/",  # of a volume
    r"(?<![\w.:])/[^\s'\",;|()]+": "PATH",
}
_MOMENTS = {  # they contain digits that may also be part of an identifier
    r"UPID:\S+": "TASK",
    r"(?i)\b(\d{14}(\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|pid[ =:]+\d+)": "TIME",
}


def common_text(message: str, identifiers: Iterable[str]) -> str:
    """Return a message without what differs between hosts: equal texts have the same reason.

    Args:
        message: of one host.
        identifiers: words that stand for this host or its guest, such as its name, VMID and node.
    """
    text = _replaced(message, _MOMENTS)
    for word in sorted(identifiers, key=len, reverse=True):
        around = (r"(?<![0-9])", r"(?![0-9])") if word[0].isdigit() else (r"\b", r"\b")
        text = re.sub(re.escape(word).join(around), "IDENTIFIER", text)
    return _replaced(text, _PLACEHOLDERS)


def _replaced(text: str, placeholders: dict[str, str]) -> str:
    for pattern, placeholder in placeholders.items():
        text = re.sub(pattern, placeholder, text)
    return text
