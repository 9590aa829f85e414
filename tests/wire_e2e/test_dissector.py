"""Compare the Wireshark dissector, run by tshark on the golden captures, with the decoder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import daskwire
import pytest
from daskwire.analysis.problems.detect import display_filter
from daskwire.analysis.problems.finding import Finding
from daskwire.analysis.problems.kinds import KINDS

from tests.unit.daskwire.build import DATA, GOLDEN
from tests.unit.daskwire.conftest import golden_capture

LUA = Path(daskwire.__file__).with_name("dask.lua")
PLAIN = [name for name in GOLDEN if not name.startswith(("tls", "ws"))]
pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tshark(name: str, *arguments: str) -> list[str]:
    script = ["tshark", "-X", f"lua_script:{LUA}", "-r", str(DATA / f"{name}.pcap.gz"), *arguments]
    result = subprocess.run(script, capture_output=True, text=True, check=True, timeout=120)
    assert "Lua Error" not in result.stdout + result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", PLAIN)
def test_tshark_counts_the_same_ops(name: str) -> None:
    lines = tshark(name, "-Y", "dask", "-T", "fields", "-e", "dask.op", "-E", "occurrence=a")
    actual = Counter(op for line in lines for op in line.split(",") if op)
    expected = Counter(golden_capture(name).messages.op_name)
    if name.startswith("g1"):  # G1 compresses its large update-graph with lz4, which Lua does not undo
        expected -= Counter(["update-graph", "update-graph-hlg"])
    assert actual == expected


@pytest.mark.parametrize("name", PLAIN)
def test_tshark_decodes_the_same_messages(name: str) -> None:
    lines = tshark(name, "-Y", "dask", "-T", "fields", "-e", "dask.length", "-E", "occurrence=a")
    actual = sorted(int(size) for line in lines for size in line.split(",") if size)
    assert actual == sorted(golden_capture(name).messages.size.tolist())


@pytest.mark.parametrize("name", PLAIN)
def test_tshark_finds_the_keys_of_batches(name: str) -> None:
    fields = ("-T", "fields", "-e", "dask.key", "-E", "aggregator=|")
    actual = Counter(key for line in tshark(name, "-Y", "dask.key", *fields) for key in line.split("|"))
    messages = golden_capture(name).messages
    keys = [messages.op_key[row] for row in messages.ops_named({"compute-task", "task-finished"})]
    missing = Counter(str(key) for key in keys) - actual
    assert keys and not missing


def test_info_column_shows_ops() -> None:
    lines = tshark("g3-2026.8.0", "-Y", "dask.ops > 1")
    assert any("task-finished, add-keys" in line or " x" in line for line in lines) and all(
        "Dask" in line for line in lines
    )


def test_installed_dissector_needs_no_option(tmp_path: Path) -> None:
    environment = os.environ | {"HOME": str(tmp_path)}
    environment |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(tmp_path / "xdg"))
    words = ["tshark", "-r", str(DATA / "g3-2026.8.0.pcap.gz"), "-Y", "dask.op == compute-task"]

    def tshark_lines() -> list[str]:
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
        assert "Lua Error" not in result.stdout + result.stderr
        return result.stdout.splitlines()

    assert tshark_lines() == []  # it does not know the field
    install = [sys.executable, "-m", "daskwire", "dissector", "--install"]
    output = subprocess.run(install, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(output.strip()).is_relative_to(tmp_path)
    assert tshark_lines()


@pytest.mark.parametrize("name", GOLDEN)
def test_tshark_shows_a_comment_for_each_message(name: str, tmp_path: Path) -> None:
    output, keys = tmp_path / "out.pcapng", DATA / f"{name}.keys"
    words = ["-o", str(output), *(["--key-log", str(keys)] if keys.exists() else [])]
    export = [sys.executable, "-m", "daskwire", "export", str(DATA / f"{name}.pcap.gz"), *words]
    subprocess.run(export, check=True, capture_output=True)
    fields = ["-T", "fields", "-e", "frame.comment", "-E", "occurrence=a", "-E", "aggregator=/s"]
    tshark = ["tshark", "-r", str(output), "-Y", "frame.comment", *fields]
    lines = subprocess.run(tshark, check=True, capture_output=True, text=True).stdout
    assert lines.count("Dask: ") == len(golden_capture(name).messages)


def test_tcp_figures_match_tshark() -> None:
    """Payload bytes, retransmissions and packets by tshark's TCP analysis."""
    fields = ("tcp.len", "tcp.analysis.retransmission")
    lines = tshark("g3-2026.8.0", "-Y", "tcp", "-T", "fields", *(a for f in fields for a in ("-e", f)))
    rows = [line.split("\t") for line in lines]
    flows = golden_capture("g3-2026.8.0").table("flows")
    assert sum(int(row[0]) for row in rows) == sum(flows["payload_bytes"])
    assert sum(row[1] == "1" for row in rows) == sum(flows["retransmitted"])
    assert len(rows) == sum(flows["packets"])


def test_tshark_accepts_the_display_filters_of_all_problems() -> None:
    connections = golden_capture("g3-2026.8.0").connections
    findings = [Finding(kind, "", when=(10**18, 10**18 + 1), flows=(0, 2)) for kind in KINDS.values()]
    filters = [display_filter(finding, connections) for finding in findings]
    assert len(set(filters)) > 10
    assert tshark("g3-2026.8.0", "-Y", " || ".join(f"({text})" for text in filters)) == []  # another time
    everything = [kind.filter for kind in KINDS.values() if kind.filter]
    assert tshark("g3-2026.8.0", "-Y", " || ".join(f"({text})" for text in everything))
