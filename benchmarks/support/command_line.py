"""The command line that all benchmarks share.

A benchmark calls `parse` before it imports anything but the standard library: ``--help`` and a wrong option
are answered at once, and what is missing is one line. ``--smallest`` stands for arguments with which the
benchmark takes some seconds; ``tests/contract/test_benchmarks.py`` runs it.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
CANNOT_RUN = 2
REMEDIES = {  # of what a benchmark may need: a command or a module
    "atheris": "pip install atheris",
    "dpkt": "pip install dpkt",
    "scapy": "pip install scapy",
    "ethtool": "apt install ethtool",
    "lxc-start": "apt install lxc",
    "mmdebstrap": "apt install mmdebstrap",
    "nft": "apt install nftables",
    "ip": "apt install iproute2",
    "setpriv": "apt install util-linux",
    "unshare": "apt install util-linux",
    "tcpdump": "apt install tcpdump",
    "tshark": "apt install tshark",
    "root": "run it as root",
}


def parse(
    doc: str | None, options: Mapping[str, tuple[Any, str]], smallest: str, needs: Iterable[str] = ()
) -> argparse.Namespace:
    """Return the arguments of this process; end it if one is wrong or something that it needs is missing.

    Args:
        doc: the benchmark's docstring.
        options: default and help of each option, and of each argument without dashes. In place of a default:
            a type, where there is none; a list with a type, for any number of values; or a tuple of choices.
        smallest: the arguments that ``--smallest`` stands for. ``{folder}`` is a new folder, removed at the
            end; ``{trial}``, ``{copy}`` of it, ``{record}`` and ``{capture}`` are some of the tests' data.
        needs: keys of `REMEDIES`.
    """
    remedies = {need: REMEDIES[need] for need in needs}
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, meaning) in options.items():
        parser.add_argument(name, help=meaning, **_form(default, positional=not name.startswith("-")))
    parser.add_argument("--smallest", action="store_true", help=f"alone: {smallest}")
    words = sys.argv[1:]
    if words == ["--smallest"]:
        words = shlex.split(_filled(smallest))
    arguments = parser.parse_args(words)
    for need, remedy in remedies.items():
        if not _is_here(need):
            parser.exit(CANNOT_RUN, f"{parser.prog} needs {need}: {remedy}\n")
    return arguments


def chosen(words: Sequence[str], allowed: Iterable[str]) -> list[str]:
    """Return the names of a list option, or all if there are none; end this process at an unknown one."""
    names = list(allowed)
    if unknown := [word for word in words if word not in names]:
        print(
            f"{Path(sys.argv[0]).name}: no {', '.join(unknown)}; allowed: {', '.join(names)}", file=sys.stderr
        )
        raise SystemExit(CANNOT_RUN)
    return list(words) or names


def _form(default: Any, positional: bool) -> dict[str, Any]:
    """Return what argparse wants for a default, see `parse`."""
    match default:
        case bool():
            return {"action": "store_true"}
        case tuple():
            return {"choices": default}
        case [kind]:
            return {"type": kind, "nargs": "*", "default": []} | ({} if positional else {"action": "extend"})
        case type():
            return {"type": default}
    return {"type": type(default), "default": default} | ({"nargs": "?"} if positional else {})


def _filled(smallest: str) -> str:
    """Return the smallest form's arguments with the folders that they name."""
    if "{" not in smallest:
        return smallest
    folder = tempfile.mkdtemp(prefix="benchmark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    capture = Path(folder, "capture.pcap")
    capture.write_bytes(gzip.decompress((DATA / "wire" / "g3-2026.8.0.pcap.gz").read_bytes()))
    names: dict[str, object] = {"folder": f"{folder}/out", "capture": capture}
    names["record"] = DATA / "records" / "slow_link_gather"
    if "{trial}" in smallest:
        from tests.unit.dasklab.stored_run import previous_run

        [trial] = previous_run(Path(folder)).glob("*/trial.json")
        names |= {"trial": trial.parent, "copy": shutil.copytree(trial.parent, f"{folder}/copy")}
    return smallest.format(**names)


def _is_here(need: str) -> bool:
    if need == "root":
        return os.geteuid() == 0
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return bool(shutil.which(need, path=path) or find_spec(need))
