"""Fuzz the decoder: any file may only raise WireError, in limited time and memory.

Needs atheris (pip install atheris), a coverage-guided fuzzer. The seeds are the first bytes of the golden
captures, and small generated captures.

    python benchmarks/wire_fuzz.py --seconds 300 [--corpus DIR]
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

from benchmarks.support.command_line import parse

if __name__ == "__main__":  # before what takes long to import
    ARGUMENTS = parse(
        __doc__,
        {
            "--seconds": (300, "length of the search"),
            "--corpus": (Path, "folder of the inputs, which is kept"),
            "--memory-mb": (1024, "that an input may take"),
        },
        smallest="--seconds 3",
        needs=("atheris",),
    )

import atheris

ROOT = Path(__file__).resolve().parents[1]
with atheris.instrument_imports(include=["daskwire"]):
    from daskwire import TABLES, WireError, open_capture

SLOWEST_S = 5.0
STATE = {"inputs": 0, "slowest_s": 0.0, "start": time.monotonic()}
SCRATCH = Path(tempfile.mkdtemp(prefix="wire-fuzz-"))


def one_input(data: bytes) -> None:
    """Decode the bytes as a capture and build every table."""
    path = SCRATCH / f"{os.getpid()}.pcap"
    path.write_bytes(data)
    begin = time.process_time()
    try:
        capture = open_capture(path)
        for name in TABLES:
            capture.table(name)
    except WireError:
        pass
    spent = time.process_time() - begin
    STATE["inputs"] += 1
    STATE["slowest_s"] = max(STATE["slowest_s"], spent)
    if STATE["inputs"] % 1000 == 0:
        seconds = time.monotonic() - STATE["start"]
        print(
            f"{STATE['inputs']} inputs, {seconds:.0f} s, slowest {STATE['slowest_s']:.3f} CPU-s", flush=True
        )
    if spent > SLOWEST_S:
        raise TimeoutError(f"{spent:.1f} CPU-s for {len(data)} bytes")


def seeds(folder: Path) -> None:
    """Write the seeds: first bytes of the golden captures, and small files of each format."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (ROOT / "tests/data/wire").glob("*.pcap.gz"):
        raw = gzip.decompress(path.read_bytes())
        for size in (400, 3000, 12_000):
            (folder / f"{path.name}-{size}").write_bytes(raw[:size])
    from tests.unit.daskwire.build import pcap, pcapng, small_talk

    talk = small_talk(2).packets
    for number, raw in enumerate(
        (pcap(talk), pcap(talk, ">", True), pcapng(talk), pcapng(talk, ">", 6), pcap(talk, link=113))
    ):
        (folder / f"made-{number}").write_bytes(raw)


def main(args: Namespace) -> None:
    """Run libFuzzer for the given time."""
    corpus = args.corpus or SCRATCH / "corpus"
    seeds(corpus)
    limits = [
        f"-max_total_time={args.seconds}",
        f"-rss_limit_mb={args.memory_mb}",
        "-max_len=20000",
        "-timeout=20",
    ]
    atheris.Setup(
        [sys.argv[0], str(corpus), *limits, "-print_final_stats=1", f"-artifact_prefix={SCRATCH}/"],
        one_input,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(ARGUMENTS)
