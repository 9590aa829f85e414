"""Behave as macOS or Windows do towards dasklab and daskwire. A program imports this before anything else.

Only the project's own code is affected: libraries bring what a system lacks.
"""

from __future__ import annotations

import builtins
import pathlib
from typing import Any

POSIX_MODULES = {"fcntl", "resource", "termios", "pwd", "grp", "tty", "pty", "syslog", "posix"}
OURS = {"dasklab", "daskwire"}
_import, _glob, _read_text = builtins.__import__, pathlib.Path.glob, pathlib.Path.read_text


def _without_posix(name: str, globals: Any = None, *arguments: Any, **options: Any) -> Any:  # noqa: A002
    importer = str((globals or {}).get("__name__", "")).partition(".")[0]
    if importer in OURS and name in POSIX_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, globals, *arguments, **options)


def _is_of_the_kernel(path: pathlib.Path) -> bool:
    return str(path).startswith(("/proc", "/sys"))


def _empty_glob(path: pathlib.Path, pattern: str, **options: Any) -> Any:
    return iter(()) if _is_of_the_kernel(path) else _glob(path, pattern, **options)


def _no_text(path: pathlib.Path, *arguments: Any, **options: Any) -> str:
    if _is_of_the_kernel(path):
        raise FileNotFoundError(str(path))
    return _read_text(path, *arguments, **options)


builtins.__import__ = _without_posix
pathlib.Path.glob = _empty_glob  # type: ignore[assignment,method-assign]
pathlib.Path.read_text = _no_text  # type: ignore[assignment,method-assign]
