"""JSON that commands print: dataclasses as pydantic writes them, and the schema that follows from them.

A class describes its fields in their annotations: ``Annotated[int, Field(description="Samples.")]``. A field
with ``exclude=True`` is not printed. A class that is a whole output has ``__pydantic_config__ = CONFIG``.
"""

from __future__ import annotations

import json
import re
from dataclasses import is_dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema

CONFIG = ConfigDict(extra="forbid", ser_json_inf_nan="null", json_schema_serialization_defaults_required=True)

Number = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]})]
"""A number; NaN is printed as null."""


class _Schema(GenerateJsonSchema):
    """Every key is printed, so defaults say nothing; that of a `Number` would be NaN, which is no JSON."""

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def checked(value: Any, type_: Any) -> Any:
    """Return plain data, such as a file's, as a type."""
    return _adapter(type_).validate_python(value)


def to_json(value: Any, type_: Any, indent: int | None = 2) -> str:
    """Return a value of a type as JSON, in ASCII, which every console can print unchanged."""
    document = _adapter(type_).dump_json(value, indent=indent, by_alias=True).decode()
    return re.sub(r"[^\0-\x7f]", lambda character: json.dumps(character[0])[1:-1], document)


def json_schema(type_: Any) -> dict[str, Any]:
    """Return the JSON Schema of what `to_json` returns for a type."""
    return _adapter(type_).json_schema(mode="serialization", schema_generator=_Schema)


def _adapter(type_: Any) -> TypeAdapter[Any]:
    """pydantic refuses a configuration for a class, which has its own; lists of classes need one."""
    return TypeAdapter(type_, config=None if is_dataclass(type_) else CONFIG)
