"""Every file of a run is a document: a type with a name on disk and the version of its form."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from dasklab.model.strict import Strict

SCHEMA: Literal[2] = 2


class Document(Strict):
    """A JSON file of a run's or a trial's directory."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    FILE: ClassVar[str]

    schema_: Literal[2] = Field(default=SCHEMA, alias="schema")

    def text(self) -> str:
        """The file's content."""
        return self.model_dump_json(indent=1) + "\n"
