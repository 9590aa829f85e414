"""Types that touch a file are validated on the way in; what is wrong is told in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from dasklab.errors import LabError, did_you_mean


class Strict(BaseModel):
    """A type that touches a file: unknown keys are refused, values are not changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


T = TypeVar("T", bound=BaseModel)


def validate(kind: type[T], value: Any, where: str) -> T:
    """Return ``value`` as ``kind``.

    Raises:
        LabError: one line that names the place, the key, what was given and what is allowed.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise LabError(f"{where}: {first_mistake(error, kind)}") from None


def plain(value: Any) -> Any:
    """Return ``value`` of plain types alone: Ansible's own strings, mappings and lists carry marks."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(each) for each in value]
    return value


def first_mistake(error: ValidationError, model: type[BaseModel]) -> str:
    """The first mistake in words, and how many more there are. A misspelt key comes first."""
    errors = error.errors()
    # a tuple whose only entry is wrong is also called empty: that adds nothing
    told = [e for e in errors if e["type"] != "too_short" or e["input"] in ([], {}, ())]
    ordered = sorted(told, key=lambda mistake: mistake["type"] != "extra_forbidden")
    mistakes = [_sentence(mistake, model) for mistake in ordered]
    unique = list(dict.fromkeys(mistakes))
    more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
    return unique[0] + more


def _sentence(mistake: Any, model: type[BaseModel]) -> str:
    kind, path, got = mistake["type"], _path(mistake["loc"], model), mistake.get("input")
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
        near = did_you_mean(got, allowed.split(", "))
        if path.endswith("[key]"):
            return f"{path.removesuffix('.[key]')}: unknown key; allowed: {allowed}{near}"
        return f"{path}: {got!r} is not allowed; allowed: {allowed}{near}"
    words = mistake["msg"][0].lower() + mistake["msg"][1:].replace("Input ", "")
    return f"{path}: {words.removeprefix('input ')}, got {got!r}"


def _path(loc: tuple[Any, ...], model: type[BaseModel]) -> str:
    """The key as the file spells it: pydantic also puts the tried member of a union into ``loc``."""
    parts = [str(part) for part in loc if not (isinstance(part, str) and _is_union_member(part))]
    return ".".join(parts) or "the file"


def _is_union_member(part: str) -> bool:
    return part in {"bool", "int", "float", "str"} or part.startswith(("dict[", "list["))


def _keys(loc: tuple[Any, ...], model: type[BaseModel]) -> list[str]:
    """The keys allowed at ``loc``: those of the model that the path leads to."""
    here: Any = model
    for part in loc:
        here = _step(here, part)
    return list(here.model_fields)


def _step(here: Any, part: Any) -> Any:
    if isinstance(here, type) and issubclass(here, BaseModel):
        here = here.model_fields[part].annotation
    elif get_origin(here) is dict:
        here = get_args(here)[1]
    elif get_origin(here) in (tuple, list):
        here = get_args(here)[0]
    if get_origin(here) in (Union, UnionType):
        here = next(arg for arg in get_args(here) if arg is not type(None))
    return here
