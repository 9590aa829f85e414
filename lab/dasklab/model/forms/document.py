"""Every file of a run is a document: a type with a file name and a format version."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from dasklab.model.forms.strict import Strict

FORMAT: Literal[4] = 4  # the key "schema" of each file


class Document(Strict):
    """A JSON file in the directory of a run or a trial. ``FILE`` is its name."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    FILE: ClassVar[str]

    schema_: Literal[4] = Field(default=FORMAT, alias="schema")

    def to_json(self) -> str:
        """The content of the file."""
        return self.model_dump_json(indent=1) + "\n"
