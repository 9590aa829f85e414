"""Bad experiment files (bad_files.yml): each is refused in one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import yaml
from dasklab.errors import LabError
from dasklab.model.experiments import experiment
from dasklab.model.experiments.experiment import Experiment
from dasklab.model.settings import workloads
from dasklab.model.settings.faults import Fault
from dasklab.model.settings.link import Link
from dasklab.model.settings.metric import METRICS
from dasklab.model.settings.nic import NicModel
from dasklab.spark import settings

CASES = yaml.safe_load(Path(__file__).with_name("bad_files.yml").read_text())
GOOD: str = CASES["good"]
REGISTRIES = {
    "experiment": Experiment.model_fields,
    "faults": get_args(Fault.model_fields["does"].annotation),
    "link": Link.model_fields,
    "metrics": METRICS,
    "nic_models": get_args(NicModel),
    "workloads": workloads.built_in(),
    "spark_workloads": settings.spark_workloads(),
}
LISTS = {name: ", ".join(registry) for name, registry in REGISTRIES.items()}


@pytest.mark.parametrize("case", CASES["bad"].values(), ids=CASES["bad"])
def test_mistake_is_reported_in_one_line(case: dict[str, str], tmp_path: Path) -> None:
    changed = GOOD.replace(case["replace"], case["by"]) if "replace" in case else case.get("all", GOOD)
    text = changed + case.get("add", "")
    assert text != GOOD
    path = tmp_path / "mine.yml"
    path.write_text(text)
    with pytest.raises(LabError) as error:
        experiment.load(str(path))
    message = case["message"]
    for name, names in LISTS.items():
        message = message.replace(f"{{{name}}}", names)
    assert str(error.value) == message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "message"),
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
def test_content_that_is_not_yaml_is_reported_in_one_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yml"
    path.write_bytes(content)
    with pytest.raises(LabError) as error:
        experiment.load(str(path))
    assert error.value.message.startswith(message) and "\n" not in error.value.message


def test_good_file_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(GOOD)
    name, content = experiment.load(str(path))
    assert (name, content.title) == ("mine", "T")


def test_unknown_experiment_lists_the_experiments() -> None:
    with pytest.raises(LabError, match="no experiment 'nix'"):
        experiment.load("nix")


def test_missing_file_is_reported() -> None:
    with pytest.raises(LabError, match=r"nowhere\.yml: No such file"):
        experiment.load("nowhere.yml")


@pytest.mark.parametrize("name", experiment.names())
def test_experiments_of_the_lab_are_valid(name: str) -> None:
    experiment.load(name)
