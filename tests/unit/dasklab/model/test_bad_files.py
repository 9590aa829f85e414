"""Bad experiment files (bad_files.yml), each with the one line that the user is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from dasklab.errors import LabError
from dasklab.model import experiment

CASES = yaml.safe_load(Path(__file__).with_name("bad_files.yml").read_text())
GOOD: str = CASES["good"]


@pytest.mark.parametrize("case", CASES["bad"].values(), ids=CASES["bad"])
def test_one_clear_line(case: dict[str, str], tmp_path: Path) -> None:
    changed = GOOD.replace(case["replace"], case["by"]) if "replace" in case else case.get("all", GOOD)
    text = changed + case.get("add", "")
    assert text != GOOD
    path = tmp_path / "mine.yml"
    path.write_text(text)
    with pytest.raises(LabError) as error:
        experiment.load(str(path))
    assert str(error.value) == case["said"]
    assert "\n" not in case["said"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"title: \xff\n", "mine.yml: not UTF-8: byte 0xff at 7"),
        ("title: ü\n".encode("utf-16"), "mine.yml: not UTF-8: byte 0xff at 0"),
        (b"title: \x00\n", "mine.yml: not YAML: control characters are not allowed"),
        (b"[" * 20_000, "mine.yml"),
        (b"? [a, b]\n: c\n", "mine.yml, line 1: a key must be a text or a number"),
        (b"? {a: b}\n: c\n", "mine.yml, line 1: a key must be a text or a number"),
        (b"", "mine.yml: an experiment is a mapping of keys to values, this is not"),
    ],
)
def test_what_is_no_text_is_told_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_bytes(content)
    with pytest.raises(LabError) as error:
        experiment.load(str(path))
    assert error.value.message.startswith(said) and "\n" not in error.value.message


def test_good_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(GOOD)
    name, content = experiment.load(str(path))
    assert (name, content.title) == ("mine", "T")


def test_unknown_experiment_names_the_known() -> None:
    with pytest.raises(LabError, match="no experiment 'nix'; there are: baseline, bridge_rate, compression"):
        experiment.load("nix")


def test_missing_file() -> None:
    with pytest.raises(LabError, match=r"nowhere\.yml: No such file"):
        experiment.load("nowhere.yml")


@pytest.mark.parametrize("name", experiment.names())
def test_every_experiment_that_comes_along_is_good(name: str) -> None:
    experiment.load(name)


def test_schema_file_is_current() -> None:
    assert (experiment.EXPERIMENTS / "schema.json").read_text() == experiment.json_schema()
