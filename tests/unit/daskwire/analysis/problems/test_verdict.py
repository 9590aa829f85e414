"""A capture has problems, has none, or nothing to judge; each answer has its reasons and exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from daskwire.analysis.problems.detect import Answer, judge
from daskwire.terminal.cli import wire

from tests.unit.daskwire.analysis.problems.cluster import Cluster, Read
from tests.unit.daskwire.build import ACK, DATA, RST, SYN, Talk, golden_bytes, packets_of, pcap
from tests.unit.daskwire.conftest import golden_capture

G3 = str(DATA / "g3-2026.8.0.pcap.gz")
TLS = DATA / "tls-2026.8.0.pcap.gz"
BEATS = packets_of(golden_bytes("g3-2026.8.0"))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(wire, ["problems", *arguments])


def answer(content: bytes, folder: Path) -> Any:
    path = folder / "capture.pcap"
    path.write_bytes(content)
    return run(str(path))


def test_no_problem_names_what_it_rests_on() -> None:
    result = run(G3)
    assert result.exit_code == 0
    assert result.stdout == (
        "no problem found in 115 Dask messages of 4 hosts in 5.1 s"
        " (all of stream bytes seen, all of TCP payload is Dask)\n"
    )


def test_capture_without_dask_has_nothing_to_judge(tmp_path: Path) -> None:
    talk = (
        Talk(server=("10.0.0.1", 80))
        .open()
        .say(0, b"GET / HTTP/1.1\r\n\r\n")
        .say(1, b"HTTP/1.1 200 OK\r\n\r\n")
    )
    result = answer(pcap(talk.packets), tmp_path)
    assert (result.exit_code, result.stdout) == (4, "nothing to judge: no Dask message in 1 TCP connection\n")


def test_empty_capture_has_nothing_to_judge(tmp_path: Path) -> None:
    result = answer(pcap([]), tmp_path)
    assert (result.exit_code, result.stdout) == (4, "nothing to judge: the capture has no packets\n")


def test_unknown_link_type_is_the_reason(tmp_path: Path) -> None:
    result = answer(pcap(BEATS, link=127), tmp_path)
    assert result.exit_code == 4
    assert result.stdout.startswith(f"nothing to judge: no TCP segment in {len(BEATS):,} packets; undecoded ")
    assert "link type 127 (802.11 with radiotap)" in result.stdout


def test_small_snaplen_is_the_reason(tmp_path: Path) -> None:
    result = answer(pcap(BEATS, snaplen=68), tmp_path)
    assert result.exit_code == 4 and "truncated to 68 bytes; record with tcpdump -i any" in result.stdout


def test_tls_without_keys_is_the_reason() -> None:
    result = run(str(TLS))
    assert result.exit_code == 4
    assert (
        result.stdout.startswith("nothing to judge: ")
        and "TLS without keys: 9 tls connections" in result.stdout
    )
    assert run(str(TLS), "--key-log", str(TLS.with_name("tls-2026.8.0.keys"))).exit_code == 0


def test_refused_connect_is_a_problem_without_any_message(read: Read) -> None:
    talk = Talk(client=("10.0.0.2", 39999))
    for _ in range(3):
        talk.add(0, SYN, seq=7)
        talk.add(1, RST | ACK, seq=0)
        talk.time_ns += 10**9
    assert judge(read(talk.packets)).answer == Answer.PROBLEMS


def test_problem_of_the_capture_is_a_problem_once_a_message_was_decoded(read: Read) -> None:
    cluster = Cluster()
    cluster.work()
    lossy = [packet for number, packet in enumerate(cluster.packets) if number % 9 != 8]
    verdict = judge(read(lossy))
    assert verdict.answer == Answer.PROBLEMS and verdict.basis.messages


def test_problems_end_with_1(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.work(without="w2")
    for at_s in (0.0, 0.5, 4.5, 5.0):
        cluster.beat("w2", at_s)
    assert answer(pcap(cluster.packets), tmp_path).exit_code == 1


def test_json_has_the_answer() -> None:
    result = json.loads(run(G3, "--json").stdout)
    assert result["rows"] == [] and (result["answer"], result["reasons"]) == ("no problem found", [])
    assert result["basis"]["messages"] == 115 and result["basis"]["stream_seen"] == 1.0
    result = json.loads(run(str(TLS), "--json").stdout)
    assert result["answer"] == "nothing to judge" and len(result["reasons"]) == 2 and result["rows"]


@pytest.mark.parametrize("name", ["g1-2.8.0", "p2p-2026.8.0"])
def test_golden_captures_can_be_judged(name: str) -> None:
    assert judge(golden_capture(name)).answer == Answer.NO_PROBLEM
