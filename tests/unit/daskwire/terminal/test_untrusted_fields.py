"""Unexpected values in any field: every command still succeeds, without warnings."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from click.testing import CliRunner
from daskwire import open_capture
from daskwire.terminal import arguments
from daskwire.terminal.cli import wire

from tests.unit.daskwire.build import HELLO, Packet, Talk, g1, g3, pcap

ANSWERS = (0, 1, 4)  # exit codes of `problems`
SENT = """compute-task task-finished task-erred free-keys steal-response heartbeat_worker register-worker
    register-client get_data shuffle_receive gather update_data"""
READ = """key keys who address name versions metrics startstops nbytes thread typename state status data
    heartbeat-interval reply packages distributed task_counts executing cpu memory latency action start stop
    digests_total_since_heartbeat type dtype shape compression num-sub-frames sub-header headers count
    __Serialized__ __Pickled__ pickled-obj serializer"""
OPS, FIELDS = SENT.split(), READ.split()
ODD = (
    None, True, 0, 1, 2, 3, -1, 2**64 - 1, -(2**63), 0.5, 1.7e9, 1.7e9 + 1, 1e308, -1e308, float("inf"),
    float("-inf"), float("nan"), "", "x", "compute", "ready", "<f8", "tcp://10.0.0.1:1", "tcp://[::1]:x",
    "[/red]", "\x1b[2J", b"", b"\xff" * 40, msgpack.ExtType(5, b"z"), msgpack.Timestamp(5, 5),
)  # fmt: skip


def random_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth < 4 and kind < 0.35:
        return {chance.choice(FIELDS): random_value(chance, depth + 1) for _ in range(chance.randrange(6))}
    if depth < 4 and kind < 0.5:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return chance.choice(ODD)


def random_packets(seed: int) -> list[Packet]:
    chance = random.Random(seed)
    write = g1 if seed % 4 == 3 else g3
    talk = Talk().open().say(0, write(HELLO)).say(1, write(HELLO))
    for number in range(60):
        request = {"op": chance.choice(OPS)} | {
            chance.choice(FIELDS): random_value(chance) for _ in range(chance.randrange(10))
        }
        frames = [msgpack.packb(random_value(chance)) for _ in range(chance.randrange(3))]
        who = number % 2
        talk.say(who, write([request] if chance.random() < 0.4 else request, *frames))
        talk.say(who ^ 1, write(random_value(chance), *frames))
    return talk.packets


@pytest.mark.parametrize("seed", range(24))
def test_any_value_in_any_field_is_accepted(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "odd.pcap"
    path.write_bytes(pcap(random_packets(seed)))
    capture = open_capture(path)  # once for all commands
    monkeypatch.setattr(arguments, "open_capture", lambda *_, **__: capture)
    tables = wire.commands.keys() - {"export", "dissector", "live"}
    for command, form in itertools.product(sorted(tables), ((), ("--json",))):
        result = CliRunner().invoke(wire, [command, str(path), *form], catch_exceptions=False)
        assert result.exit_code in ANSWERS, result.output
    words = ["export", str(path), "-o", str(tmp_path / "out.pcapng")]
    result = CliRunner().invoke(wire, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(wire, [str(path), "--parquet", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_infinite_times_are_ignored(tmp_path: Path) -> None:
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    for key, stop in (("a", float("inf")), ("b", float("nan")), ("c", 1e300), ("d", 1.7e9 + 1)):
        talk.say(1, g3([{"op": "compute-task", "key": key}]))
        steps = [{"action": "compute", "start": 1.7e9, "stop": stop}]
        talk.say(0, g3([{"op": "task-finished", "key": key, "startstops": steps}]))
    path = tmp_path / "endless.pcap"
    path.write_bytes(pcap(talk.packets))
    result = CliRunner().invoke(wire, ["summary", str(path)], catch_exceptions=False)
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("compute ")]
    assert lines == [["compute", "1", "1000.000", "1000.000", "1000.000", "1000.000"]]
    assert result.stderr == ""
