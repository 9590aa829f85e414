"""The click type of a run that a command reads: its folder, or the file that `dasklab results pack` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dasklab.errors import LabError
from dasklab.path_types import UserPath


class RunPath(UserPath):
    """An existing path, which may be a packed run or lead into one: ``run.zip/1-01-baseline``.

    A packed run is unpacked into the cache; the value is the path there.
    """

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from dasklab.results.storage.pack import is_packed, unpack

        path = Path(value).absolute()
        try:
            for file in (path, *path.parents):
                if is_packed(file):
                    return super().convert(unpack(file) / path.relative_to(file), param, ctx)
        except LabError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)
