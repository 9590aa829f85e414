"""Where this host gets Debian from, so that the golden image comes through the same mirror and proxy."""

from __future__ import annotations

import re
from pathlib import Path

from minipve import process

APT = Path("/etc/apt")
PASSED_ON = re.compile(
    r"^(Acquire::(https?::(Proxy|Timeout)|Check-Valid-Until|Check-Date|Retries)\b.*);$", re.MULTILINE
)


def mirrors(suite: str) -> list[str]:
    """This host's own lines for ``suite``; none when it runs another release (mmdebstrap has a default)."""
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.list"))]
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    stanzas = [file.read_text() for file in sorted((APT / "sources.list.d").glob("*.sources"))]
    found = [line for text in stanzas for line in one_line_style(text)] + lines
    chosen = [line for line in found if is_debian(line, suite)]
    return chosen if any(f" {suite} " in line for line in chosen) else []


def is_debian(line: str, suite: str) -> bool:
    """Whether an apt line is Debian's own main archive for ``suite``, its updates or its security fixes."""
    words = re.sub(r"\[[^]]*\]", "", line).split()
    return (
        words[:1] == ["deb"]
        and words[2] in {suite, f"{suite}-updates", f"{suite}-security"}
        and "main" in words[3:]
    )


def one_line_style(deb822: str) -> list[str]:
    """The enabled binary sources of a deb822 file as one-line entries (pure)."""
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
    """The host's apt options that downloads depend on: proxies, time-outs, validity checks."""
    return passed_on(process.run(["apt-config", "dump", "Acquire"])) if process.which("apt-config") else []


def passed_on(dump: str) -> list[str]:
    """Those lines of ``apt-config dump`` (pure)."""
    return [match[0] for match in PASSED_ON.findall(dump)]
