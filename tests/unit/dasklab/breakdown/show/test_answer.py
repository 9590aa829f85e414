"""What is said of a record before any table: in one order, wherever it is read."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from dasklab.breakdown.show.answer import answer
from dasklab.breakdown.show.documents import ExplainedTrial
from dasklab.breakdown.show.explain import Explained, explain
from dasklab.breakdown.show.notebook import Explanation
from dasklab.cli import main
from dasklab.model.forms.json_output import json_schema
from dasklab.results.run import Trial

RECORDS = Path(__file__).parents[4] / "data" / "records"


@pytest.fixture(scope="module")
def noworkers() -> Explained:
    return explain(Trial(RECORDS / "noworkers"))


def test_number_of_workers_is_said_in_the_headline(noworkers: Explained) -> None:
    headline = answer(noworkers).headline
    assert headline.startswith(
        "It took 5.94 s on 1 thread (no worker until 4.6 s, then 1 worker). Thread time: "
    )


@pytest.mark.parametrize("name", ["otherclient", "retries", "killedworker", "restart_inside"])
def test_what_explains_most_time_is_said_first(name: str) -> None:
    others = answer(explain(Trial(RECORDS / name))).others
    large = [sentence.seconds for sentence in others if sentence.seconds]
    assert others and large == sorted(large, reverse=True)
    assert [bool(sentence.seconds) for sentence in others] == sorted(
        (bool(sentence.seconds) for sentence in others), reverse=True
    )


@pytest.mark.parametrize("name", ["noworkers", "otherclient", "retries"])
def test_terminal_notebook_and_json_say_the_same_in_the_same_order(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RECORDS / name, tmp_path / name))
    explained = explain(Trial(folder))
    texts = answer(explained).texts
    document = json.loads(CliRunner().invoke(main, ["explain", str(folder), "--json"]).output.splitlines()[0])
    jsonschema.validate(document, json_schema(ExplainedTrial))
    assert [document["gap"], document["headline"], *(each["text"] for each in document["others"])] == texts
    notebook = Explanation(explained)
    terminal = CliRunner().invoke(main, ["explain", str(folder)]).output
    for output, table in (
        (terminal, "critical path  where"),
        (str(notebook), "critical path  where"),
        (html.unescape(notebook._repr_html_()), "<table"),
    ):
        places = [output.index(text) for text in texts]
        assert places == sorted(places) and places[-1] < output.index(table)
