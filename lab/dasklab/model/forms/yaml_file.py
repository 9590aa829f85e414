"""Read an experiment's YAML file, and refuse in one line what is not a bounded mapping with unique keys."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from dasklab.errors import LabError

MAX_FILE_VALUES = 50_000  # aliases are written out; the largest experiment has 200


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file.

    Raises:
        LabError: the file cannot be read, is not YAML, or is not a mapping with texts as keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
        require_bounded(text)
        content = yaml.load(text, Loader=_UniqueKeys)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LabError(
            f"{path.name}: not UTF-8: byte {error.object[error.start]:#04x} at {error.start}"
        ) from error
    except yaml.reader.ReaderError as error:
        raise LabError(f"{path.name}: not YAML: {error.reason} at {error.position}") from error
    except RecursionError as error:
        raise LabError(f"{path.name}: it is nested too deeply") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise LabError(f"{path.name}, line {line}: {error.problem}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise LabError(f"{path.name}: an experiment is a mapping of keys to values, this is not")
    return content


def require_bounded(text: str) -> None:
    """Refuse aliases that make a small text a huge value, or a value a part of itself.

    Raises:
        yaml.YAMLError: it has such aliases, or is not YAML.
    """
    sizes: dict[str, int] = {}  # number of values below each anchor
    collections: list[tuple[str | None, int]] = []  # those that are open, with the values before each
    values = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in collections):
                raise _refusal(f"*{event.anchor} is a part of itself", event)
            values += sizes.get(str(event.anchor), 1)
            if values > MAX_FILE_VALUES:
                raise _refusal(f"aliases make it more than {MAX_FILE_VALUES:,} values", event)
        elif isinstance(event, yaml.CollectionStartEvent):
            collections.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = collections.pop()
            if anchor is not None:
                sizes[anchor] = values - before
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1


def _refusal(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, event.start_mark)  # type: ignore[arg-type]


class _UniqueKeys(yaml.CSafeLoader):
    """A YAML loader that refuses a repeated key instead of keeping the last one."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    keys: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(
                None, None, "a key must be a text or a number", key_node.start_mark
            )
        if key in keys:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} is given twice", key_node.start_mark
            )
        keys.add(key)
    return dict(loader.construct_mapping(node, deep=True))


_UniqueKeys.add_constructor("tag:yaml.org,2002:map", _mapping)
