"""Which methods are here, refused or missing; the texts of 501."""

from __future__ import annotations

import pytest
from minipve.api import coverage


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
            "Method 'GET /cluster/firewall/refs' not implemented: there is no firewall "
            "(docs/reference/minipve-methods.md)",
        ),
    ],
)
def test_501_tells_a_gap_from_a_typo(verb: str, path: str, text: str) -> None:
    assert coverage.not_implemented(verb, path) == text
