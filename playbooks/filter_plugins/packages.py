"""Where the files of the package dasklab are, in a checkout and when it is installed from a wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dasklab


def dasklab_file(name: str) -> str:
    """Return the absolute path of a file or folder of the package, such as ``workloads``."""
    return str(Path(dasklab.__file__).resolve().parent / name)


class FilterModule:
    """The filters by name, as Ansible asks for them."""

    def filters(self) -> dict[str, Callable[..., str]]:
        """Return the filters by name."""
        return {"dasklab_file": dasklab_file}
