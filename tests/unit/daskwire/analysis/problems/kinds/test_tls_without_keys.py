"""Encrypted connections."""

from __future__ import annotations

from click.testing import CliRunner
from daskwire.terminal.cli import wire

from tests.unit.daskwire.analysis.problems.cluster import findings
from tests.unit.daskwire.build import DATA
from tests.unit.daskwire.conftest import golden_capture


def test_tls_without_keys_comes_first() -> None:
    row = findings(golden_capture("tls-2026.8.0"))
    assert row == []
    result = CliRunner().invoke(wire, ["problems", str(DATA / "tls-2026.8.0.pcap.gz")])
    first, advice = result.stdout.splitlines()
    assert first.startswith("nothing to judge: ") and "; TLS without keys: 9 tls connections with " in first
    assert advice.startswith("   TLS without keys: Start the processes with SSLKEYLOGFILE")
