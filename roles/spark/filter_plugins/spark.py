"""How Spark writes settings: the same as what is read back is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dasklab.model.engines import spark_text


class FilterModule:
    """Ansible's way to it."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"spark_written": spark_text}
