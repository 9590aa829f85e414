"""Validate what comes from a file, and report what is wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from dasklab.errors import LabError, did_you_mean


class Strict(BaseModel):
    """A type that comes from a file: unknown keys are refused, and values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _require_file_name(name: str) -> str:
    if "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} leads out of its folder")
    return name


FileName = Annotated[str, AfterValidator(_require_file_name)]
"""The name of a file or a folder below the one that the document is in, or is made in."""

T = TypeVar("T", bound=BaseModel)


def validate(model: type[T], value: Any, where: str) -> T:
    """Return ``value`` as a ``model``.

    Raises:
        LabError: the value is invalid; one line has the place, the key, the value and what is allowed.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise LabError(f"{where}: {first_mistake(error, model)}") from None


def plain(value: Any) -> Any:
    """Return ``value`` with plain types only. Ansible marks its own strings, mappings and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    return value


def first_mistake(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first mistake as a sentence, and the number of others. A misspelt key comes first."""
    # pydantic also reports a tuple as empty if its only entry is wrong; that adds nothing
    errors = [e for e in error.errors() if e["type"] != "too_short" or e["input"] in ([], {}, ())]
    ordered = sorted(errors, key=lambda mistake: mistake["type"] != "extra_forbidden")
    mistakes = [_sentence(mistake, model) for mistake in ordered]
    unique = list(dict.fromkeys(mistakes))
    more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
    return unique[0] + more


def _sentence(mistake: Any, model: type[BaseModel]) -> str:
    kind, path, value = mistake["type"], _path(mistake["loc"]), mistake.get("input")
    if kind == "extra_forbidden":
        allowed = _keys(mistake["loc"][:-1], model)
        return (
            f"{path}: unknown key; allowed: {', '.join(allowed)}{did_you_mean(mistake['loc'][-1], allowed)}"
        )
    if kind == "missing":
        return f"{path}: missing"
    if kind == "too_short":
        return f"{path}: needs at least one entry"
    if kind == "value_error":
        return f"{path}: {mistake['ctx']['error']}"
    if kind == "literal_error":
        allowed = mistake["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        near = did_you_mean(value, allowed.split(", "))
        if path.endswith("[key]"):
            return f"{path.removesuffix('.[key]')}: unknown key; allowed: {allowed}{near}"
        return f"{path}: {value!r} is not allowed; allowed: {allowed}{near}"
    words = mistake["msg"][0].lower() + mistake["msg"][1:].replace("Input ", "")
    return f"{path}: {words.removeprefix('input ')}, got {value!r}"


def _path(loc: tuple[Any, ...]) -> str:
    """Return the key as the file writes it. Pydantic adds the member of a union that it tried to ``loc``."""
    parts = [str(part) for part in loc if not (isinstance(part, str) and _is_union_member(part))]
    return ".".join(parts) or "the file"


def _is_union_member(part: str) -> bool:
    return part in {"bool", "int", "float", "str"} or part.startswith(("dict[", "list["))


def _keys(loc: tuple[Any, ...], model: type[BaseModel]) -> list[str]:
    """Return the keys that are allowed at ``loc``: the fields of the model there."""
    inner: Any = model
    for part in loc:
        inner = _type_of(inner, part)
    return list(inner.model_fields)


def _type_of(outer: Any, part: Any) -> Any:
    """Return the type of one part of an outer type: a field, or an entry of a collection."""
    inner = outer
    if isinstance(outer, type) and issubclass(outer, BaseModel):
        inner = outer.model_fields[part].annotation
    elif get_origin(outer) is dict:
        inner = get_args(outer)[1]
    elif get_origin(outer) in (tuple, list):
        inner = get_args(outer)[0]
    if get_origin(inner) in (Union, UnionType):
        inner = next(member for member in get_args(inner) if member is not type(None))
    return inner
