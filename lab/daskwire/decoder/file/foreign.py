"""Recognise files that are not pcap or pcapng, and name the command that converts them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from daskwire.decoder.file.source import STDIN_NAME

EDITCAP = "convert it: editcap -F pcapng {path} {path}.pcapng"
PKTMON = "convert it: pktmon etl2pcap {path} --out {path}.pcapng"
RECORD = "record packets with tcpdump -w FILE instead of printing them"
HEAD = 512  # bytes that identify a format


@dataclass(frozen=True)
class Foreign:
    """A foreign format: a pattern for the first bytes of its files, its name, and what to do."""

    pattern: bytes
    name: str
    remedy: str


FORMATS = (
    Foreign(rb"snoop\0", "a snoop capture", EDITCAP),
    Foreign(rb"RTSS|GMBU", "a Microsoft Network Monitor capture", EDITCAP),
    Foreign(rb"TRSNIFF data", "a Sniffer capture", EDITCAP),
    Foreign(rb"XCP\0", "a NetXRay capture", EDITCAP),
    Foreign(rb"iptrace [12]\.0", "an AIX iptrace capture", EDITCAP),
    Foreign(rb"\x7fver", "an OmniPeek capture", EDITCAP),
    Foreign(rb"\xaa\xaa\xaa\xaa", "a 5Views capture", EDITCAP),
    Foreign(rb"\x05VNF", "a Visual Networks capture", EDITCAP),
    Foreign(rb"TR\0d", "an HP nettl trace", EDITCAP),
    Foreign(rb"\+-{9}\+-", "a K12 text capture", EDITCAP),
    Foreign(rb"\x34\xcd\xb2\xa1|\xa1\xb2\xcd\x34", "a modified pcap", EDITCAP),
    Foreign(rb"\x04\x22\x4d\x18", "an lz4 file", "decompress it: lz4 -d {path}"),
    Foreign(rb"PK\x03\x04", "a zip archive", "extract it: unzip {path}"),
    Foreign(rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "extract it: 7z x {path}"),
    Foreign(rb"(?s).{257}ustar", "a tar archive", "extract it: tar -xf {path}"),
    Foreign(rb"\d\d:\d\d:\d\d\.\d+ (IP|ARP|[0-9a-f]{2}:)", "the printed output of tcpdump", RECORD),
    Foreign(rb"\s*\[?\s*\{[\s\"]*_index", "the JSON output of tshark", RECORD),
    Foreign(rb"<\?xml[^>]*>\s*(<!--.*?-->\s*|<\?.*?\?>\s*)*<(pdml|psml)", "the XML output of tshark", RECORD),
)


def describe(view: memoryview, name: str) -> str:
    """Describe why a file is not a capture, and how to convert it if its format is known."""
    if not len(view):
        return "empty"
    head, path = bytes(view[:HEAD]), "FILE" if name == STDIN_NAME else name
    for form in FORMATS:
        if re.match(form.pattern, head):
            return f"this is {form.name}; {form.remedy.format(path=path)}"
    if path.lower().endswith(".etl"):
        return f"this is a Windows trace; {PKTMON.format(path=path)}"
    return "neither pcap nor pcapng"
