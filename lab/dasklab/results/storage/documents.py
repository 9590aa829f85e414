"""Read and write one document of a run or a trial: whole and typed, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.model.forms.document import FORMAT, Document
from dasklab.model.forms.strict import validate

D = TypeVar("D", bound=Document)


def exists(kind: type[Document], directory: Path) -> bool:
    """Whether a directory has a document of this kind."""
    return (directory / kind.FILE).exists()


def read(kind: type[D], directory: Path) -> D | None:
    """Return the document of this kind in a directory; None if there is none.

    Raises:
        LabError: the file cannot be read, is not JSON, has an unknown format, or is not valid.
    """
    return read_file(kind, directory / kind.FILE)


def read_file(kind: type[D], path: Path) -> D | None:
    """Return the document in a file of any name; None if there is no such file.

    Raises:
        LabError: see ``read``.
    """
    content = parse(path)
    if content is None:
        return None
    version = content.get("schema")
    if version != FORMAT:
        raise LabError(f"{path}: format {version!r}; this version of dasklab reads {FORMAT}")
    return validate(kind, content, str(path))


def parse(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is no such file.

    Raises:
        LabError: the file cannot be read, or holds no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        why = "the file is empty" if isinstance(error, ValueError) and not path.stat().st_size else error
        raise LabError(f"{path}: not JSON: {why}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path}: a JSON object is expected, this is {_json_type(content)}")
    return content


def require(kind: type[D], directory: Path) -> D:
    """Return the document of this kind in a directory.

    Raises:
        LabError: see ``read``; or there is none.
    """
    document = read(kind, directory)
    if document is None:
        raise LabError(f"{directory}: it has no {kind.FILE}")
    return document


def write(directory: Path, document: Document) -> None:
    """Write a document completely or not at all, so that a killed driver leaves no half of a file."""
    atomic.write_text(directory / document.FILE, document.to_json())


def _json_type(content: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(content), "null")
