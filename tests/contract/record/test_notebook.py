"""The tutorial's notebook runs from top to bottom, and shows what its text says."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[3] / "docs" / "tutorials" / "record.ipynb"
PATIENCE_S = 300


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[nbformat.NotebookNode]:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=PATIENCE_S, resources=resources).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def output(cells: list[nbformat.NotebookNode], contains: str) -> str:
    """Return what a cell shows, as HTML where it has some."""
    (cell,) = [cell for cell in cells if contains in cell.source]
    parts = [out.get("text") or out["data"].get("text/html", "") for out in cell.outputs]
    return "".join(parts)


def test_an_explanation_has_a_sentence_tables_and_a_picture(cells: list[nbformat.NotebookNode]) -> None:
    page = output(cells, "da.random")
    assert "On the critical path: " in page and page.count("<table") >= 2 and "<svg" in page
    assert "currentColor" in page  # the picture has the colour of the page's text, also of a dark page


def test_operations_have_the_names_of_their_spans(cells: list[nbformat.NotebookNode]) -> None:
    page = output(cells, 'span("load")')
    assert "load</td>" in page and "sum</td>" in page and "client: its own code" in page


def test_the_lock_is_advised_on(cells: list[nbformat.NotebookNode]) -> None:
    assert "waited for the Lock 'file' that store holds" in output(cells, 'Lock("file")')
