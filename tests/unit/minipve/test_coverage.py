"""Which methods are here, refused or missing; the generated page; the texts of 501."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.api import coverage

ROOT = Path(__file__).parents[3]


def test_page_is_up_to_date() -> None:
    assert (ROOT / coverage.PAGE).read_text() == coverage.page()


def test_readme_contains_the_summary() -> None:
    assert coverage.summary() in (ROOT / "lab/minipve/README.md").read_text()


def test_every_method_of_pve_has_one_status() -> None:
    methods = list(coverage.methods())
    assert len(methods) == len(set(methods)) > 600
    assert {coverage.status(*method) for method in methods} == {"here", "refused", "missing"}


@pytest.mark.parametrize(
    ("verb", "path", "text"),
    [
        ("GET", "/nosuch", "Method 'GET /nosuch' not implemented"),
        ("POST", "/version", "Method 'POST /version' not implemented"),
        (
            "GET",
            "/nodes/pve/ceph/osd/3/metadata",
            "Method 'GET /nodes/pve/ceph/osd/3/metadata' not implemented: there is no Ceph "
            "(docs/reference/minipve-methods.md)",
        ),
        (
            "GET",
            "/cluster/firewall/refs",
            "Method 'GET /cluster/firewall/refs' not implemented: minipve does not have it "
            "(docs/reference/minipve-methods.md)",
        ),
    ],
)
def test_501_tells_a_gap_from_a_typo(verb: str, path: str, text: str) -> None:
    assert coverage.not_implemented(verb, path) == text
