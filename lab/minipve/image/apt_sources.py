"""This host's apt sources and settings, so that the golden image uses the same mirror and proxy."""

from __future__ import annotations

import re
from pathlib import Path

from minipve.base import process

APT = Path("/etc/apt")
RELEVANT_OPTION = re.compile(
    r"^(Acquire::(https?::(Proxy|Timeout)|Check-Valid-Until|Check-Date|Retries)\b.*);$", re.MULTILINE
)


def mirrors(suite: str) -> list[str]:
    """Return this host's one-line sources of a Debian release.

    The list is empty if the host runs another release; mmdebstrap then uses its default mirror.
    """
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.list"))]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    stanzas = [file.read_text() for file in sorted((APT / "sources.list.d").glob("*.sources"))]
    all_lines = [line for text in stanzas for line in one_line_style(text)] + lines
    of_suite = [line for line in all_lines if is_debian(line, suite)]
    return of_suite if any(f" {suite} " in line for line in of_suite) else []


def is_debian(line: str, suite: str) -> bool:
    """Whether a one-line source is Debian's main archive of ``suite``, its updates or its security fixes."""
    words = re.sub(r"\[[^]]*\]", "", line).split()
    return (
        words[:1] == ["deb"]
        and words[2] in {suite, f"{suite}-updates", f"{suite}-security"}
        and "main" in words[3:]
    )


def one_line_style(deb822: str) -> list[str]:
    """Convert the enabled binary sources of a deb822 file to one-line sources (pure)."""
    stanzas = [_fields(stanza) for stanza in re.split(r"\n\s*\n", deb822)]
    return [
        f"deb {_options(fields)}{uri} {suite} {fields.get('components', '')}".rstrip()
        for fields in stanzas
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes").lower() != "no"
        for uri in fields.get("uris", "").split()
        for suite in fields.get("suites", "").split()
    ]


def _fields(stanza: str) -> dict[str, str]:
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    pairs = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", "\n".join(lines), re.MULTILINE)
    return {name.lower(): " ".join(value.split()) for name, value in pairs}


def _options(fields: dict[str, str]) -> str:
    key = fields.get("signed-by", "")
    return f"[signed-by={key}] " if key.startswith("/") else ""


def options() -> list[str]:
    """Return the host's apt options that matter for downloads: proxies, timeouts, validity checks."""
    return (
        parse_options(process.run(["apt-config", "dump", "Acquire"])) if process.which("apt-config") else []
    )


def parse_options(dump: str) -> list[str]:
    """Select the relevant lines of ``apt-config dump`` (pure)."""
    return [match[0] for match in RELEVANT_OPTION.findall(dump)]
