"""A picture that a command draws beside what it prints, if matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dasklab import extras
from dasklab.paths import display_path
from dasklab.terminal import echo

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_picture(title: str, draw: Callable[[], Figure], stem: Path) -> None:
    """Write a picture as ``stem``.svg and ``stem``.png and print where it is, or else how to get one."""
    if find_spec("matplotlib") is None:
        echo(f"\n{title}: not drawn. To get the picture: {extras.not_installed('matplotlib').hint}")
        return
    from dasklab.plotting import save

    save(draw(), stem)
    echo(f"\n{title}: {display_path(stem)}.svg")
