from __future__ import annotations

import pytest
from click.testing import CliRunner
from minipve.endpoint.cli import minipve
from minipve.image import golden


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sreve"], "minipve: No such command 'sreve'. Did you mean serve?"),
        (["--nix"], "minipve: No such option '--nix'."),
        (
            ["serve", "--nodes", "x"],
            "minipve: Invalid value for '--nodes': 'x' is not a valid integer range.",
        ),
        (
            ["--requirements", "/nowhere.txt", "image"],
            "minipve: requirements file /nowhere.txt does not exist",
        ),
    ],
)
def test_errors_are_one_line(words: list[str], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIPVE_REQUIREMENTS", "")  # the option sets it: this removes it afterwards
    monkeypatch.delenv("MINIPVE_REQUIREMENTS")
    done = CliRunner().invoke(minipve, words)
    assert done.exit_code in (1, 2)
    assert done.stderr.splitlines()[0] == line


def test_unwritable_output_is_refused_before_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golden, "build", lambda *_: pytest.fail("the image was built"))
    monkeypatch.setenv("MINIPVE_REQUIREMENTS", "")  # the option sets it: this removes it afterwards
    monkeypatch.delenv("MINIPVE_REQUIREMENTS")
    done = CliRunner().invoke(minipve, ["image", "--output", "/proc/nowhere/image.qcow2"])
    assert done.exit_code == 1
    assert done.stderr == "minipve: /proc/nowhere is not a directory\n"
