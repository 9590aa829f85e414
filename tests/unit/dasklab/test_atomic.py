"""Files are written completely or not at all, and errors name the file."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from dasklab import atomic
from dasklab.console.path_types import OutputFile
from dasklab.paths import SHARE as ROOT

from tests.waiting import PATIENCE_S

DATA = ROOT / "tests" / "data"
LIMIT_BYTES = 64  # less than any file that the commands write
COMMANDS: dict[str, Callable[[Path, Path], list[str | Path]]] = {  # arguments for a run and an output
    "out.csv": lambda run, out: ["results", "export", run, out],
    "out.parquet": lambda run, out: ["results", "export", run, out],
    "report": lambda run, out: ["report", run, "-o", out],
    "trial.pftrace": lambda run, out: ["explain", run / "1-01-baseline", "--json", "--trace", out],
    "wire": lambda run, out: ["wire", "messages", run / "capture.pcap", "--parquet", out],
    "kept": lambda run, out: ["history", "--results", out, "add", run],
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A stored run with a capture."""
    folder = tmp_path / "results" / "baseline" / "20260101T000000Z"
    with tarfile.open(DATA / "run" / "baseline.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(folder)
    (folder / "capture.pcap").write_bytes(gzip.decompress((DATA / "wire/g3-2026.8.0.pcap.gz").read_bytes()))
    capture = folder / "1-01-baseline" / "trial.json"
    capture.write_text(capture.read_text().replace('"capture": true', '"capture": false'))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def dasklab(*words: str | Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command; with ``limit`` no file can grow beyond so many bytes, as on a full disk."""
    command = [sys.executable, "-m", "dasklab", *map(str, words)]

    def small() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, preexec_fn=small
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_failed_write_keeps_the_old_content(run: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out" / name
    out.parent.mkdir()
    words = COMMANDS[name](run, out)
    process = dasklab(*words)
    assert process.returncode == 0, process.stderr
    before = contents(out.parent)
    assert before and not any(atomic.PREFIX in path for path in before)
    failed = dasklab(*words, limit=LIMIT_BYTES)
    assert failed.returncode == (3 if name == "wire" else 1)
    assert failed.stderr.count("\n") == 1 and "Traceback" not in failed.stderr
    assert f"{out}" in failed.stderr and failed.stderr.endswith(": File too large\n")
    assert contents(out.parent) == before
    shutil.rmtree(out.parent)
    out.parent.mkdir()
    assert dasklab(*words, limit=LIMIT_BYTES).returncode == failed.returncode
    assert contents(out.parent) == {} and list(out.parent.iterdir()) in ([], [out])


def test_full_disk_keeps_the_old_export(run: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = (
        f"mount -t tmpfs -o size=64k none {disk} || exit; cd {disk};"
        " echo old >table.csv; head -c 40k /dev/zero >f;"
        f" {sys.executable} -m dasklab results export {run} {disk}/table.csv; echo $?; cat table.csv; ls -A"
    )
    process = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if "unshare" in process.stderr or "mount:" in process.stderr:
        pytest.skip(f"no namespaces here: {process.stderr}")
    assert process.stderr == f"dasklab: {disk}/table.csv: No space left on device\n"
    assert process.stdout.split() == ["1", "old", "f", "table.csv"]


def test_interrupted_write_leaves_nothing_new(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic.replaced(tmp_path / "file") as draft:
        draft.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="bug"), atomic.filled(tmp_path / "folder") as draft:
        (draft / "half").write_text("half")
        raise ValueError("bug")
    assert contents(tmp_path) == {"file": b"old"} and not (tmp_path / "folder").exists()


def test_folder_keeps_files_that_are_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "mine").write_text("mine")
    (folder / "below" / "page").write_text("old")
    with atomic.filled(folder) as draft:
        (draft / "below").mkdir()
        (draft / "below" / "page").write_text("new")
    assert contents(folder) == {"mine": b"mine", "below/page": b"new"}


def test_only_links_that_the_user_typed_are_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(tmp_path / "second")
    (tmp_path / "second").symlink_to("target")
    atomic.write_text(OutputFile().convert(str(link), None, None), "typed")
    assert link.is_symlink() and target.read_text() == "typed"
    atomic.write_text(link, "new")
    assert not link.is_symlink() and link.read_text() == "new" and target.read_text() == "typed"


def test_folder_is_not_filled_through_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"), atomic.filled(tmp_path / "link"):
        raise AssertionError("filled")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "below").symlink_to(precious / "below")
    with atomic.filled(tmp_path / "folder") as draft:
        (draft / "below").mkdir()
        (draft / "below" / "page").write_text("new")
    assert contents(tmp_path) == {"folder/below/page": b"new"}


def test_drafts_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from dasklab import atomic; here = pathlib.Path(sys.argv[1])\n"
        "with atomic.filled(here / 'folder') as folder, atomic.replaced(here / 'file') as file:\n"
        "    (folder / 'half').write_text('half'); file.write_text('half'); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    (tmp_path / f"{atomic.PREFIX}{'0' * 12}").mkdir()  # the form of earlier versions
    os.utime(tmp_path / f"{atomic.PREFIX}{'0' * 12}", (0, 0))
    young = tmp_path / f"{atomic.PREFIX}{'1' * 8}-1-{'1' * 12}"  # of a process on another system
    young.mkdir()
    with atomic.replaced(tmp_path / "running"):
        assert sum(path.name.startswith(atomic.PREFIX) for path in tmp_path.iterdir()) == 2
        atomic.write_text(tmp_path / "file", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, "file", "running"]


def test_modes_and_streams(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    target.chmod(0o600)
    atomic.write_text(target, "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    mask = os.umask(0o027)
    try:
        atomic.write_text(tmp_path / "fresh", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640
    atomic.write_text(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        atomic.write_text(tmp_path / "pipe", "streamed")
        assert reader.communicate()[0] == "streamed"


def test_error_names_the_final_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file") as error:
        atomic.write_text(tmp_path / "file" / "below", "x")
    assert atomic.PREFIX not in str(error.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory") as error:
        atomic.write_text(tmp_path / "folder", "x")
    assert error.value.filename == str(tmp_path / "folder")
