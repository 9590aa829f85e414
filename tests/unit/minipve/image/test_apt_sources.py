"""The host's apt sources and options."""

from __future__ import annotations

import pytest
from minipve.image import debian

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://other.example
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://off.example
Suites: bookworm
Components: main
"""


def test_deb822_sources_become_one_line_sources() -> None:
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    lines = debian.one_line_style(DEB822)
    assert lines[0] == f"deb {key} http://mirror.example/debian bookworm main"
    assert [line for line in lines if debian.is_debian(line, "bookworm")] == [
        f"deb {key} http://mirror.example/debian {suite} main" for suite in ("bookworm", "bookworm-updates")
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("deb http://m.example/debian bookworm main contrib", True),
        ("deb [arch=amd64 signed-by=/k] http://m.example/debian-security bookworm-security main", True),
        ("deb-src http://m.example/debian bookworm main", False),
        ("deb http://m.example/docker bookworm stable", False),
        ("deb http://m.example/ubuntu noble main", False),
        ("# deb http://m.example/debian bookworm main", False),
        ("deb http://m.example/flat ./", False),
        ("", False),
    ],
)
def test_only_debians_main_archive_is_used(line: str, expected: bool) -> None:
    assert debian.is_debian(line, "bookworm") is expected


def test_proxy_and_date_options_are_selected() -> None:
    selected = ['Acquire::http::Proxy "http://p:3128"', 'Acquire::Check-Date "false"']
    dump = ['Acquire ""', selected[0], 'Acquire::Languages ""', selected[1]]
    assert debian.parse_options("".join(f"{line};\n" for line in dump)) == selected
