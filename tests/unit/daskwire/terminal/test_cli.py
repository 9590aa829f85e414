"""The commands and their documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import daskwire
import pytest
from click.testing import CliRunner, Result
from daskwire import TABLES, open_capture, rows, to_pandas, write_parquet
from daskwire.decoder.file.tcpdump import FILTER, RECORD, options
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import DATA, golden_bytes
from tests.unit.daskwire.conftest import golden_capture, golden_truth

README = (Path(daskwire.__file__).parent / "README.md").read_text()
RECORDING_PAGES = ("tutorials/capture.md", "how-to/decode-a-capture.md")
G1, G3 = str(DATA / "g1-2.8.0.pcap.gz"), str(DATA / "g3-2026.8.0.pcap.gz")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(wire, arguments)


def test_summary_is_the_default_command() -> None:
    result = run(G3)
    assert result.exit_code == 0 and result.stdout == run("summary", G3).stdout
    assert "133 Dask messages (G3, distributed 2026.8.0) in 9 of 9 connections" in result.stdout
    assert "100.00 % of stream bytes seen, 100.00 % framed, 100.00 % of messages decoded" in result.stdout


def test_summary_has_nodes_problems_and_slowest_transfers() -> None:
    lines = run(G3).stdout.splitlines()
    nodes = "scheduler 10.99.7.116:8786, worker-1 10.99.7.117, client 10.99.7.115, worker-2 10.99.7.118"
    assert f"nodes: {nodes}" in lines
    assert any(line.startswith("no problem found in 115 Dask messages") for line in lines)
    (title,) = [number for number, line in enumerate(lines) if line.startswith("slowest transfers")]
    assert lines[title + 1].split()[-2:] == ["wire_ms", "mb_s"] and lines[title + 2].startswith("worker-")


def test_json_summary_matches_the_counts_of_the_cluster() -> None:
    output = json.loads(run(G3, "--json").stdout)
    truth = golden_truth("g3-2026.8.0")
    assert output["schema"] == 1 and output["messages"] == sum(node["messages"] for node in truth.values())
    for op in ("compute-task", "task-finished", "get_data", "heartbeat_worker"):
        assert output["ops"][op] == sum(node["ops"].get(op, 0) for node in truth.values())
    whole = output["completeness"]
    assert whole["stream_seen"] == whole["framed"] == whole["decoded"] == whole["whole"] == 1.0
    assert whole["lost_by_capture_bytes"] == whole["resyncs"] == 0


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_printed_and_available_as_json(name: str) -> None:
    output = json.loads(run(name, G3, "--json").stdout)
    assert output["rows"] == rows(golden_capture("g3-2026.8.0").table(name))
    assert list(output["columns"]) == list(golden_capture("g3-2026.8.0").table(name)) == list(TABLES[name])
    shown = run(name, G3, "--limit", "2")
    assert shown.exit_code == 0 and "Traceback" not in shown.output


def test_heartbeats_shows_the_first_one_by_packet() -> None:
    lines = run("heartbeats", G1).stdout.splitlines()
    assert re.search(r"worker-\d -> scheduler +PSH,ACK +seq 1 +ack 1 +len 273", lines[0])
    assert any(
        re.search(r"scheduler -> worker-\d +PSH,ACK +seq 1 +ack 274 +len 77", line) for line in lines[:4]
    )
    assert "    heartbeat-interval = 0.5" in lines


def test_since_and_until_select_packets() -> None:
    whole, part = (
        json.loads(run(G3, "--json").stdout),
        json.loads(run(G3, "--json", "--since", "2.4", "--until", "3").stdout),
    )
    assert 0 < part["packets"] < whole["packets"] and part["seconds"] <= 0.6
    iso = json.loads(run(G3, "--json", "--since", "2001-01-01", "--until", "2001-01-02").stdout)
    assert iso["packets"] == 0 and iso["messages"] == 0


def test_user_names_take_precedence() -> None:
    assert {"boss", "worker-1"} <= {
        r["source"]
        for r in json.loads(run("matrix", G3, "--json", "--node", "10.99.7.116=boss").stdout)["rows"]
    }


def test_tls_with_and_without_keys() -> None:
    tls = str(DATA / "tls-2026.8.0.pcap.gz")
    assert "9 connections use tls: only their sizes and times are known" in run(tls).stdout
    assert "122 Dask messages" in run(tls, "--key-log", str(DATA / "tls-2026.8.0.keys")).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["absent.pcap"], "absent.pcap: No such file or directory"),
        ([str(DATA / "README.md")], "neither pcap nor pcapng"),
        (["problems", "absent.pcap"], "absent.pcap: No such file or directory"),
        ([G3, "--key-log", "absent.log"], "absent.log: No such file or directory"),
    ],
)
def test_errors_of_files_are_one_line(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 3 and says in result.stderr and len(result.stderr.splitlines()) == 1


def test_truncated_file_is_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    path.write_bytes(golden_bytes("g3-2026.8.0")[:-7])
    result = run(str(path))
    assert (
        result.exit_code == 0
        and "truncated: the last record" in result.stderr
        and "Dask messages" in result.stdout
    )


def test_parquet_files_contain_tables_and_descriptions(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    result = run(G3, "--parquet", str(tmp_path))
    assert sorted(Path(line).stem for line in result.stdout.split()) == sorted(TABLES)
    capture = open_capture(G3)
    for name, columns in TABLES.items():
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.num_rows == len(to_pandas(capture.table(name)))
        assert {f.name: f.metadata[b"description"].decode() for f in table.schema} == columns
    assert [p.name for p in write_parquet(capture, tmp_path / "one", ["tasks"])] == ["tasks.parquet"]


def test_readme_names_each_command_and_option() -> None:
    for name, command in wire.commands.items():
        assert re.search(rf"\b{name}\b", README), name
        for option in command.params:
            flags = [f for f in option.opts if f.startswith("--")]
            assert not flags or flags[0] in README, flags


def test_documents_recommend_one_way_to_record() -> None:
    root = Path(daskwire.__file__).parents[2]
    pages = [README, *(root.joinpath("docs", page).read_text() for page in RECORDING_PAGES)]
    lines = [line for page in pages for line in page.splitlines() if re.search(r"tcpdump .*-w [\w-]", line)]
    assert len(lines) >= 7 and RECORD in "\n".join(lines)
    for line in lines:
        assert " ".join(options()) in line and FILTER in line, line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ops", G3, "--limit", "-3"], "Invalid value for '--limit': -3 is not in the range x>=0."),
        (["ops", G3, "--limit", "few"], "Invalid value for '--limit': 'few' is not a valid integer range."),
        (["ops", G3, "--colour"], "No such option"),
        (["ops"], "Missing argument 'FILES...'."),
        ([G3, "--since", "9", "--until", "3"], "--since 9 is not before --until 3"),
        ([G3, "--since", "3", "--until", "3"], "--since 3 is not before --until 3"),
        ([G3, "--since", "inf"], "'inf' is not a number of seconds after the first packet"),
        ([G3, "--until", "nan"], "'nan' is not a number of seconds after the first packet"),
        ([G3, "--until", "1e300"], "'1e300' is not a number of seconds after the first packet"),
        ([G3, "--since", "0001-01-01"], "neither seconds after the first packet nor a time"),
        ([G3, "--since", "soon"], "'soon' is neither seconds after the first packet nor a time"),
        ([G3, "--node", "10.0.0.1"], "expected ADDRESS=NAME"),
        ([G3, "--node", "=name"], "expected ADDRESS=NAME"),
        (["flow", G3], "flow: no such file or command; did you mean flows?"),
        (["problem", G3], "did you mean problems?"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert says in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("span", [["--since", "100"], ["--until", "2001-01-01"]])
def test_empty_time_span_reports_the_extent_of_the_capture(span: list[str]) -> None:
    result = run(G3, *span)
    assert result.exit_code == 0 and result.stdout.startswith("0 packets")
    assert "no packet in this time span; the capture covers 0 to " in result.stderr


def test_file_named_like_a_command_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow").write_bytes(golden_bytes("g3-2026.8.0"))
    assert "133 Dask messages" in run("flow").stdout


def test_printed_times_start_at_the_first_packet() -> None:
    """Also those of ``tasks``, which has two clocks."""
    title, head, *lines = run("tasks", G3).stdout.splitlines()
    assert re.match(
        r"tasks \(0 s is 20\d\d-\d\d-\d\d [\d:.]+ UTC; start_s, stop_s: the workers' clocks\)", title
    )
    begin = head.index("thread") + len("thread")
    for line in lines:
        sent, start, stop, finished = map(float, line[begin : head.index("wait_ms")].split()[:4])
        assert 0 < sent < 60 and abs(start - sent) < 1 and abs(stop - sent) < 1 and abs(finished - sent) < 1
    assert 0 <= float(run("series", G3).stdout.splitlines()[2].split()[0]) + 1 < 10


def test_summary_shows_the_largest_rows_in_few_columns() -> None:
    lines = run("summary", G3).stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("composition"))
    rows = lines[start + 2 : lines.index("", start)]
    total = len(run("composition", G3, "--limit", "0").stdout.splitlines()) - 2
    assert lines[start] == f"composition, the 10 largest of {total} (all: daskwire composition)"
    sizes = [int(row.split()[-1].replace(",", "")) for row in rows]
    assert len(sizes) == 10 and sizes == sorted(sizes, reverse=True)
    assert all(len(line) <= 80 for line in lines[start:])
