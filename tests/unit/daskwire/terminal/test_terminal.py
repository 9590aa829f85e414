"""Untrusted text in a capture reaches the terminal only in escaped form."""

from __future__ import annotations

import ast
import json
import unicodedata
from functools import partial
from pathlib import Path

import daskwire.terminal
import pytest
from click.testing import CliRunner
from daskwire.base.printable import plain
from daskwire.terminal import printing
from daskwire.terminal.cli import wire
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.daskwire.build import HELLO, Talk, g3, packets_with_comments, pcap

ANSWERS = (0, 1, 4)  # exit codes of `problems`
MARKUP = "load[/data/x][/red][bold red]b[/]"
ESCAPES = "a\x1b[2Jb\x1b]0;t\x07c\x9b2Jd\x08\re\x7f"
BIDI = "f\u202eg\u2066h\u200fi\u2028j\u200bk"
HOSTILE = f"{MARKUP} {ESCAPES} {BIDI}"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A cluster whose names, ops, keys and versions contain terminal escapes and markup."""
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    register = {"op": "register-worker", "address": "tcp://10.0.0.2:3333", "name": HOSTILE, "reply": False}
    versions = {"packages": {"distributed": f"2026.8.0{HOSTILE}"}}
    talk.say(0, g3({**register, "versions": versions}))
    talk.say(0, g3({"op": "heartbeat_worker", "address": "tcp://10.0.0.2:3333", HOSTILE: {HOSTILE: HOSTILE}}))
    talk.say(1, g3({"status": "OK"}))
    talk.say(1, g3([{"op": "compute-task", "key": HOSTILE}, {"op": HOSTILE, "key": HOSTILE}]))
    steps = [{"action": "compute", "start": 1.7e9, "stop": 1.7e9 + 1}] * 2
    done = {"op": "task-finished", "key": HOSTILE, "typename": HOSTILE, "startstops": steps}
    done |= {"thread": HOSTILE}
    talk.say(0, g3([done, {**done, "key": f"{HOSTILE}2"}]))
    talk.say(0, g3({"op": "get_data", "keys": [HOSTILE], "who": "tcp://10.0.0.9:1"}))
    talk.say(1, g3({"status": HOSTILE, "data": {HOSTILE: {"__Serialized__": 1}}}, g3({"type": HOSTILE})[24:]))
    path = tmp_path / "hostile.pcap"
    path.write_bytes(pcap(talk.packets))
    return path


def harmless(output: str) -> bool:
    return all(line.isprintable() for line in output.split("\n"))


@pytest.mark.parametrize("name", sorted(wire.commands.keys() - {"export", "dissector", "live"}))
@pytest.mark.parametrize("form", ["text", "json"])
def test_every_command_escapes_untrusted_text(hostile: Path, name: str, form: str) -> None:
    arguments = [name, str(hostile), "--limit", "0", *(["--json"] if form == "json" else [])]
    result = CliRunner().invoke(wire, arguments, catch_exceptions=False)
    assert result.exit_code in ANSWERS and harmless(result.stdout) and harmless(result.stderr)
    if form == "json":
        assert json.loads(result.stdout)
    elif name in ("ops", "tasks", "messages", "gaps", "composition", "summary", "parts", "heartbeats"):
        assert MARKUP in result.stdout and r"a\x1b[2Jb\x1b]0;t\x07c\x9b2Jd\x08\re\x7f" in result.stdout


@pytest.mark.parametrize("name", ["ops", "tasks", "summary"])
def test_drawn_tables_escape_untrusted_text(
    hostile: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the escapes for bold headers, the output is plain text."""
    drawn: list[str] = []

    def draw(what: object) -> None:
        console = Console(width=2000, force_terminal=True, color_system="truecolor")
        with console.capture() as got:
            console.print(what)
        drawn.append(got.get().replace("\x1b[1m", "").replace("\x1b[0m", ""))

    monkeypatch.setattr("daskwire.terminal.printing.on_terminal", lambda: True)
    monkeypatch.setattr("daskwire.terminal.printing.draw", draw)
    result = CliRunner().invoke(wire, [name, str(hostile), "--limit", "0"], catch_exceptions=False)
    assert result.exit_code == 0 and drawn and all(map(harmless, drawn))
    assert any(MARKUP in output for output in drawn)


def test_text_is_wrapped_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for terminal in (False, True):
        monkeypatch.setattr("daskwire.terminal.printing.on_terminal", partial(bool, terminal))
        printing.write_text("a line with more than 20 characters", "-  ", "   ")
    assert capsys.readouterr().out.splitlines() == [
        "-  a line with more than 20 characters",
        "-  a line with more",
        "   than 20",
        "   characters",
    ]


@given(st.text())
def test_plain_keeps_only_printable_characters(output: str) -> None:
    shown = plain(output)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert shown == output or any(not c.isprintable() for c in output)


def test_comments_of_an_export_escape_untrusted_text(hostile: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.pcapng"
    result = CliRunner().invoke(wire, ["export", str(hostile), "-o", str(output)], catch_exceptions=False)
    assert result.exit_code == 0 and harmless(result.stdout)
    comments = [comment for _, comments in packets_with_comments(output) for comment in comments]
    assert any(MARKUP in comment and r"a\x1b[2Jb" in comment for comment in comments)
    assert all(comment.isprintable() for comment in comments)


def test_only_the_text_module_writes_output() -> None:
    folder = Path(daskwire.terminal.__file__).parent
    actual = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            call = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if call in ("print", "Console") or call.split(".")[-1] in ("echo", "secho", "write", "print"):
                actual.add(path.name)
    assert actual == {Path(printing.__file__).name}


def test_pipe_output_has_complete_names_and_aligned_columns(tmp_path: Path) -> None:
    long, short = "('a-very-long-name', 1)" * 40, "x"
    talk = Talk().open().say(0, g3(HELLO)).say(1, g3(HELLO))
    talk.say(1, g3([{"op": "compute-task", "key": long}, {"op": "compute-task", "key": short}]))
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap(talk.packets))
    lines = CliRunner().invoke(wire, ["ops", str(path)], catch_exceptions=False).stdout.splitlines()
    assert lines[1].split() == ["time_s", "source", "destination", "op", "key", "message", "cluster"]
    assert len(lines) == 4 and long in lines[2] and "…" not in "".join(lines)
    assert {line.index("compute-task") for line in lines[2:]} == {lines[1].index("op ")}
    assert lines[2].index(long) == lines[3].index(f"{short} ") == lines[1].index("key")
