"""No control character of others reaches a terminal, a notebook or a log, whichever printer prints it."""

from __future__ import annotations

import ast
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import dasklab
import pytest
from click.testing import CliRunner
from dasklab import terminal
from dasklab.breakdown.show.notebook import explain_folder
from dasklab.cli import main
from dasklab.errors import LabError, plain
from dasklab.notices import LOGGER, warn
from dasklab.records import chunk_file
from dasklab.records.document import RECORD
from dasklab.records.recorder.layout import layout

from tests.unit.daskwire.terminal.test_terminal import BIDI, ESCAPES

PACKAGE = Path(dasklab.__file__).parent
DATA = Path(__file__).parents[2] / "data" / "records"
HOSTILE = f"{ESCAPES}{BIDI}\r\x85"
WRITERS = {("stdout", "write"), ("stderr", "write")}
OWN_PROGRAMS = {  # they do not run in the process of a command, or write a document that a program reads
    "model/experiments/experiment.py", "wheels.py", "sim/__main__.py", "sim/cluster/servers.py",
}  # fmt: skip
NAMED = {"key", "keys", "name", "type", "code", "path"}  # contents that a user chooses freely


def harmless(output: str) -> bool:
    return all(line.isprintable() for line in output.split("\n"))


def writes(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield calls that print: of click, rich, Python or a stream."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("print", "Text"):
            yield node
        elif isinstance(function, ast.Attribute):
            owner = function.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            is_cell = all(is_escaped(argument) for argument in node.args)
            if name in ("click", "Text") or (name, function.attr) in WRITERS:
                if function.attr in ("echo", "secho", "write", "from_markup", "assemble", "echo_via_pager"):
                    yield node
            elif function.attr == "print" and not is_cell:
                yield node


def is_escaped(argument: ast.expr) -> bool:
    """Return whether it is made of `terminal.cell` or `terminal.make_table`."""
    if isinstance(argument, ast.BinOp):
        return is_escaped(argument.left) and is_escaped(argument.right)
    return isinstance(argument, ast.Call) and getattr(argument.func, "id", "") in (
        "cell",
        "make_table",
        "_table",
    )


def test_only_the_printers_write_output() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    calls = [
        f"{name}:{call.lineno}"
        for name in sorted(names - {"terminal.py", *OWN_PROGRAMS})
        if not name.startswith("workloads/")
        for call in writes(ast.parse((PACKAGE / name).read_text(encoding="utf-8")))
    ]
    assert not calls, "print with dasklab.terminal"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record whose freely chosen texts end in control characters."""
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    shutil.copytree(DATA / "retries", tmp_path / "record")
    content = (tmp_path / "record" / RECORD).read_bytes()
    (tmp_path / "record" / RECORD).unlink()
    for process, _, chunk in chunk_file.inflated(content):
        table, rows, columns = chunk_file.open_chunk(chunk)
        contents = {column.name: column.content for column in layout(process)[table]}
        heads = [
            [
                name,
                kind,
                [text + HOSTILE if text else "" for text in more] if contents[name] in NAMED else more,
                len(body),
            ]
            for name, kind, more, body in columns
        ]
        parts = [table.encode(), json.dumps([rows, heads]).encode(), b"".join(body for *_, body in columns)]
        chunk_file.append(tmp_path / "record" / RECORD, process, [zlib.compress(b"\n".join(parts))])
    return tmp_path / "record"


@pytest.mark.parametrize("option", ["--all", "--why", "--memory", "--json"])
def test_explanations_of_a_hostile_record_are_harmless(hostile: Path, option: str) -> None:
    result = CliRunner().invoke(main, ["explain", str(hostile), option])
    assert harmless(result.stdout) and harmless(result.stderr)
    if option == "--why":
        assert r"\u001b]0;t\u0007" in result.stdout, result.output
    if option == "--json":
        assert all(json.loads(line) for line in result.stdout.splitlines())


def test_a_notebook_of_a_hostile_record_is_harmless(hostile: Path) -> None:
    explanation = explain_folder(hostile)
    evidence = explanation.why()
    for text in (str(explanation), repr(explanation), str(evidence), evidence._repr_html_()):
        assert harmless(text)
    assert harmless(explanation._repr_html_().partition("<div")[0])


def test_all_printers_escape(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    text = f"a name: {HOSTILE}"
    terminal.echo(text)
    terminal.print_prose(text)
    terminal.print_table([text], [[text]], text)
    terminal.CommandError(text).show()
    print(terminal.table_text([text], [[text]]), LabError(text, text))
    with terminal.working() as show:
        show(text)
    LOGGER.propagate = True
    warn(text)
    written = capsys.readouterr()
    assert harmless(written.out) and harmless(written.err) and harmless(caplog.records[-1].getMessage())
    assert written.out.count(r"\u001b]0;t\u0007") == 9


def test_json_stays_json() -> None:
    text = json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False)
    assert json.loads(plain(text)) == {HOSTILE: HOSTILE} and harmless(plain(text))
