"""minipve removes only state folders that it created."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from minipve.base import process
from minipve.base.errors import MachineError, UserError
from minipve.base.paths import Paths
from minipve.endpoint import setup
from minipve.endpoint.cli import minipve


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def purge(monkeypatch: pytest.MonkeyPatch, state: Path) -> tuple[int, str]:
    monkeypatch.setenv("MINIPVE_STATE", str(state))
    done = CliRunner().invoke(minipve, ["stop", "--purge"])
    assert not isinstance(done.exception, OSError | UserError), done.exception
    return done.exit_code, done.output


def test_new_folder_is_private_and_marked(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.claim(paths)
    setup.claim(paths)
    assert paths.state.stat().st_mode & 0o777 == 0o700
    (paths.state / "storage").mkdir()
    assert purge(monkeypatch, paths.state) == (0, "stopped\n")
    assert not paths.state.exists()


def test_foreign_folder_is_neither_used_nor_removed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.state.mkdir()
    (paths.state / "thesis.txt").write_text("three years")
    with pytest.raises(UserError, match="is not empty and was not created by minipve") as refused:
        setup.claim(paths)
    assert "MINIPVE_STATE" in str(refused.value.hint)
    code, said = purge(monkeypatch, paths.state)
    assert (code, "did not create" in said, "nothing was removed" in said) == (1, True, True)
    assert (paths.state / "thesis.txt").read_text() == "three years"


def test_target_of_a_link_is_not_removed(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup.claim(paths)
    (tmp_path / "link").symlink_to(paths.state)
    code, said = purge(monkeypatch, tmp_path / "link")
    assert (code, f"rm -r {paths.state}" in said) == (1, True)
    assert paths.state.exists()


def test_failed_removal_is_reported(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only file system."""

    def refuse(path: Path) -> None:
        raise MachineError(f"rm: cannot remove '{path}/storage': Read-only file system")

    setup.claim(paths)
    monkeypatch.setattr(process, "remove_tree", refuse)
    code, said = purge(monkeypatch, paths.state)
    assert (code, said.count("\n")) == (1, 2)
    assert f"cannot remove '{paths.state}/storage': Read-only file system\n  rm -r {paths.state}\n" in said
