"""A person who has a fresh machine, a checkout and its README, and does what the README says.

Commands are those of the README's code blocks, as they are written. Only what a person brings is added: a
program, a cluster, a capture.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

from dasklab.paths import SHARE as ROOT

from tests.fresh_machine import FreshMachine

CAPTURE = ROOT / "tests" / "data" / "wire" / "g3-2026.8.0.pcap.gz"
CODE = re.compile(r"^```(?:python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL, RECORD, RECORD_CLUSTER, DECODE = COMMANDS = (  # words of the README's code blocks
    "pip install",
    "dasklab.record(client",
    "dasklab record tcp://",
    "daskwire capture.pcap",
)
OWN_PROGRAM = """
import dask.array
import dasklab
from distributed import Client

if __name__ == "__main__":
    client = Client(n_workers=2, threads_per_worker=1)
    array = dask.array.random.random((4000, 4000), chunks=(500, 500)).sum()
"""
OWN_CLUSTER = """
import time
from distributed import Client

client = Client("tcp://scheduler:8786")
client.gather(client.map(lambda number: time.sleep(0.2), range(40), pure=False))
"""
RECORDED = """
set -m  # else a job in the background ignores Ctrl-C
dask scheduler --host 127.0.0.1 --no-dashboard 2>scheduler.log &
dask worker tcp://scheduler:8786 --nworkers 2 --nthreads 1 --no-dashboard 2>workers.log &
{record} >recorded.txt 2>&1 &
recorder=$!
until grep -q Recording recorded.txt; do kill -0 $recorder || {{ cat recorded.txt; exit 1; }}; sleep 0.1; done
python work.py
kill -INT $recorder
wait $recorder
cat recorded.txt
"""


def block(words: str) -> str:
    """Return the README's code block that has these words."""
    blocks = [text for text in CODE.findall((ROOT / "README.md").read_text()) if words in text]
    assert len(blocks) == 1, f"{words!r}: {len(blocks)} code blocks of the README"
    return str(blocks[0])


class Newcomer:
    """What a person does on a fresh machine; each method returns what the commands print."""

    def __init__(self, folder: Path) -> None:
        self.machine = FreshMachine.make(folder)
        copy_checkout(self.machine.home / "dasklab")

    def install(self) -> str:
        """Install dasklab from the checkout."""
        return self.machine.run(block(INSTALL), "dasklab", online=True)

    def explain_own_program(self) -> str:
        """Record a program and print its explanation."""
        recorded = textwrap.indent(block(RECORD), "    ")
        return self._use("python program.py", "program", {"program.py": (OWN_PROGRAM + recorded).encode()})

    def explain_own_cluster(self) -> str:
        """Record a cluster that runs, from a shell, and explain and predict it."""
        record, *others = block(RECORD_CLUSTER).splitlines()
        commands = "\n".join([RECORDED.format(record=record.partition("#")[0]), *others])
        return self._use(commands, "cluster", {"work.py": OWN_CLUSTER.encode()})

    def decode_own_capture(self) -> str:
        """Read a capture."""
        capture = gzip.decompress(CAPTURE.read_bytes())
        return self._use(block(DECODE), "capture", {"capture.pcap": capture})

    def make(self, command: str) -> str:
        """Run a command of the README that `make` carries out in the checkout."""
        assert command in block(command)
        return self.machine.run(command, "dasklab", online=True, timeout_s=1500)

    def _use(self, commands: str, folder: str, files: Mapping[str, bytes]) -> str:
        """Run commands of the installed programs in a new folder with these files."""
        (self.machine.home / folder).mkdir()
        for name, content in files.items():
            (self.machine.home / folder / name).write_bytes(content)
        return self.machine.run(f". ~/dasklab/.venv/bin/activate\n{commands}", folder)


def copy_checkout(target: Path) -> None:
    """Copy the files that Git knows, as they are now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).exists():  # else it was deleted
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
            (target / name).chmod((ROOT / name).stat().st_mode)
