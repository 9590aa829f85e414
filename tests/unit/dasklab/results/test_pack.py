"""A packed run is one file, and `report`, `explain` and `results` open it like its folder."""

from __future__ import annotations

import io
import os
import re
import time
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dasklab.cli import main
from dasklab.errors import LabError
from dasklab.results import cached, pack
from dasklab.results.run import Run

from tests.unit.dasklab.stored_run import TRIAL, previous_run


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASKLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return previous_run(tmp_path / "results")


@pytest.fixture
def packed(folder: Path) -> Path:
    result = run("results", "pack", folder)
    assert result.exit_code == 0, result.output
    return Path(result.output.strip())


def test_packed_run_is_shown_and_explained_like_its_folder(folder: Path, packed: Path) -> None:
    assert packed == Path.cwd() / f"baseline-{folder.name}.zip"
    for words in (("results", "show"), ("explain", "--json")):
        plain, opened = run(*words, folder), run(*words, packed)
        assert plain.exit_code == 0 and plain.stdout, plain.output
        assert (opened.exit_code, opened.stdout) == (0, plain.stdout)
    trial, inside = run("explain", "--json", folder / TRIAL), run("explain", "--json", packed / TRIAL)
    assert trial.exit_code == 0 and (inside.exit_code, inside.stdout) == (0, trial.stdout)


def test_report_of_a_packed_run_is_written_where_the_user_is(folder: Path, packed: Path) -> None:
    result = run("report", packed)
    page = Path(f"baseline-{folder.name}-report", "report.html")  # in the current folder
    assert (result.exit_code, result.stdout) == (0, f"{page}\n")
    assert page.exists()


def test_everything_but_what_is_made_of_the_rest_is_packed(folder: Path, packed: Path) -> None:
    before = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert run("explain", folder / TRIAL).exit_code == run("report", folder).exit_code == 0
    assert (folder / "report").is_dir()
    again = pack.pack(folder, packed)
    with zipfile.ZipFile(again) as archive:
        names = {name.removeprefix(f"baseline/{folder.name}/") for name in archive.namelist()}
    assert before <= names
    assert {name for name in names - before if not name.startswith(f"{TRIAL}/explain.")} == set()


def test_a_changed_run_is_unpacked_again(folder: Path, packed: Path) -> None:
    first = pack.unpack(packed)
    assert pack.unpack(packed) == first and pack.is_unpacked(first) and not pack.is_unpacked(folder)
    (folder / "note.txt").write_text("changed")
    second = pack.unpack(pack.pack(folder, packed))
    assert second != first and (second / "note.txt").exists()
    assert Run(second).document == Run(folder).document


def test_packs_that_only_look_alike_have_folders_of_their_own(folder: Path, packed: Path) -> None:
    """A name, a CRC-32 and a size are easily given to other content."""
    first = pack.unpack(packed)
    with zipfile.ZipFile(packed, "a") as archive:
        before = [(member.filename, member.CRC, member.file_size) for member in archive.infolist()]
        archive.comment = b"another file"
    with zipfile.ZipFile(packed) as archive:
        assert before == [(member.filename, member.CRC, member.file_size) for member in archive.infolist()]
    assert pack.unpack(packed) != first


def test_packs_that_nobody_uses_are_removed(packed: Path) -> None:
    first = pack.unpack(packed).parents[1]
    draft = first.with_name(".tmp-0123456789ab")
    draft.mkdir()
    for path in (first, draft):
        os.utime(path, (0, time.time() - cached.MAX_AGE_S - 1))
    pack.unpack(packed)  # it is used
    assert first.exists() and not draft.exists()
    os.utime(first, (0, time.time() - cached.MAX_AGE_S - 1))
    other = Path("other.zip")
    other.write_bytes(archive_of("a/b", "a/c"))
    pack.unpack(other)
    assert not first.exists()


def test_links_in_a_run_are_neither_packed_nor_written_through(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "file").write_text("precious")
    for name, target in (("explain.svg", "file"), ("records", "inside")):
        (folder / TRIAL / name).symlink_to(precious / target)
    for name, target in (("report", "inside"), ("note", "file")):
        (folder / name).symlink_to(precious / target)
    for words in (["explain", folder / TRIAL], ["report", folder], ["results", "show", folder]):
        result = run(*words)
        assert result.exit_code == 0, result.output
    assert (precious / "file").read_text() == "precious" and not list((precious / "inside").iterdir())
    (folder / TRIAL / "explain.svg").unlink()
    (folder / TRIAL / "explain.svg").symlink_to(precious / "file")
    result = run("results", "pack", folder)
    with zipfile.ZipFile(result.stdout.strip()) as archive:
        assert not [name for name in archive.namelist() if name.endswith(("note", "explain.svg"))]


def archive_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return buffer.getvalue()


def bomb() -> bytes:
    """Return an archive of 0.2 MB that unpacks to 200 MB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a/b", "w") as member:
        for _ in range(200):
            member.write(bytes(1_000_000))
    return buffer.getvalue()


def compressed_with(kind: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        archive.writestr("a/b", "{}")
        archive.writestr("a/c", "{}")
    return buffer.getvalue()


BAD = {
    "bzip2": (compressed_with(zipfile.ZIP_BZIP2), "it is compressed otherwise than"),
    "lzma": (compressed_with(zipfile.ZIP_LZMA), "it is compressed otherwise than"),
    "bomb": (bomb(), "it would unpack to 1,0.. times its size, 0.2 GB; at most 100 times"),
    "many files": (
        archive_of(*(f"a/{number}" for number in range(100_001))),
        "100,001 files; at most 100,000",
    ),
    "outside": (archive_of("a/b", "a/../../b"), "names in it lead out of it"),
    "no folder": (archive_of("a", "b"), "this is no packed run"),
    "cut off": (archive_of("a/b", "a/c").replace(b"{}", b"[]", 1), "it cannot be unpacked: Bad CRC-32"),
}


@pytest.mark.parametrize(("content", "reason"), BAD.values(), ids=BAD)
def test_other_archives_are_refused_in_one_line(folder: Path, content: bytes, reason: str) -> None:
    file = Path("bad.zip")
    file.write_bytes(content)
    result = run("results", "show", file)
    assert result.exit_code == 2 and re.search(reason, result.output), result.output
    assert not list((folder.parents[2] / "cache").glob("packs/*"))
    with pytest.raises(LabError, match=reason):
        pack.unpack(file)


def test_only_runs_and_records_are_packed(folder: Path) -> None:
    result = run("results", "pack", folder.parent)
    assert (result.exit_code, "this is neither a run nor a record" in result.output) == (1, True)
