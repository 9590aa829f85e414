"""Write what commands print of each stored record, run and capture into a folder, to compare two versions.

    python tests/golden.py BEFORE          # then change the code
    python tests/golden.py AFTER && diff -r BEFORE AFTER

A file for each command, with its exit code as last line. More records, runs or captures may follow.
It takes about ten minutes of two cores; ``--only WORD`` runs the commands whose file contains the word.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import daskwire.terminal.cli  # noqa: F401 (imported once for all commands)

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
EXPLAIN = ["--json"], ["--why"], ["--all"], ["--memory"], []
WHATIF = (
    ["--seeds", "1"],
    ["--seeds", "1", "--set", "rate_mbit=100"],
    ["--scale", "workers=2,8", "--seeds", "1"],
)
CAPTURE = (
    ["summary"], ["problems"], ["problems", "--json"], ["nodes"], ["messages"], ["transfers"], ["tasks"],
    ["flows"], ["gaps"], ["heartbeats"], ["parts"], ["reach"],
)  # fmt: skip


def commands(more: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of each command, paths relative to the root where possible."""
    records = [path.parent for path in sorted((DATA / "records").glob("*/record.json"))]
    packs = sorted((ROOT / "docs/gallery").glob("*.zip"))
    captures = sorted((DATA / "wire").rglob("*.pcap.gz"))
    for path in more:
        (captures if ".pcap" in path.name else packs if path.suffix == ".zip" else records).append(path)
    for record in map(str, records):
        yield from (("dasklab", "explain", record, *options) for options in EXPLAIN)
        yield from (("dasklab", "whatif", record, *options) for options in WHATIF)
        yield "dasklab", "check", record, "--against", record
    for one, other in zip(map(str, records), map(str, records[1:]), strict=False):
        yield "dasklab", "explain", one, other
    for pack in map(str, packs):
        yield from (("dasklab", "explain", pack, *options) for options in EXPLAIN)
        yield "dasklab", "results", "show", pack
        yield "dasklab", "results", "compare", pack, pack
        yield "dasklab", "report", pack, "--single-file", "report.html"
    for capture in map(str, captures):
        keys = capture.replace(".pcap.gz", ".keys").replace(".pcap", ".keys")
        secrets = ["--key-log", keys] if Path(keys).exists() else []
        yield from (("daskwire", *options, *secrets, capture) for options in CAPTURE)


def output(arguments: tuple[str, ...]) -> str:
    """Run a command in a folder of its own, and return what it printed and wrote as text."""
    program, *rest = arguments
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "printed")
        pid = os.fork()  # of a process that has imported what the command takes longest for
        if not pid:
            os.chdir(folder)
            os.environ |= {"HOME": folder, "COLUMNS": "100", "NO_COLOR": "1"}
            file = os.open(printed, os.O_CREAT | os.O_WRONLY)
            os.dup2(file, 1)
            os.dup2(file, 2)
            sys.argv = [program, *rest]
            code = 1
            try:
                runpy.run_module(program, run_name="__main__")
            except SystemExit as exit_:
                code = exit_.code if isinstance(exit_.code, int) else bool(exit_.code)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        written = [
            f"== {path.relative_to(folder)}\n{path.read_text()}"
            for path in sorted(Path(folder).rglob("*"))
            if path.suffix in {".md", ".html", ".txt"}
        ]
        end = f"exit {os.waitstatus_to_exitcode(status)}\n"
        return f"{printed.read_text()}{''.join(written)}{end}".replace(folder, "FOLDER")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("more", type=Path, nargs="*")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    names = {
        re.sub(r"[^\w.=,-]+", "_", " ".join(one).replace(f"{ROOT}/", "")): one
        for one in commands([path.resolve() for path in options.more])
    }
    chosen = {name: one for name, one in names.items() if options.only in name}
    with ProcessPoolExecutor(2) as pool:
        for number, (name, text) in enumerate(zip(chosen, pool.map(output, chosen.values()), strict=True), 1):
            (options.folder / name).write_text(text.replace(str(ROOT), "ROOT"))
            print(f"{number}/{len(chosen)} {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
