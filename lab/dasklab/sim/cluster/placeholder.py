"""Placeholders for the results of tasks: they have a size and no content, and are that large on the wire."""

# mypy: disable-error-code="no-untyped-call,untyped-decorator"
from __future__ import annotations

import mmap
from typing import Any

from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

MAX_BYTES = 1 << 36
ZEROS = memoryview(mmap.mmap(-1, MAX_BYTES, mmap.MAP_PRIVATE, mmap.PROT_READ))


class Placeholder:
    """A result of ``nbytes`` bytes. Any operation that a workload applies to it returns a placeholder."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes_ = nbytes

    def __float__(self) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def _itself(self, *_: Any, **__: Any) -> Placeholder:
        return self

    __call__ = __getitem__ = __abs__ = __neg__ = _itself
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _itself

    def __reduce__(self) -> Any:
        return Placeholder, (self.nbytes_,)


@sizeof.register(Placeholder)
def _size(result: Placeholder) -> int:
    return result.nbytes_


@dask_serialize.register(Placeholder)
def _serialize(result: Placeholder, context: Any = None) -> tuple[dict[str, int], list[memoryview]]:
    """Return a view of one mapping of zeros, which takes no memory however large the result is."""
    return {"nbytes": result.nbytes_}, [ZEROS[: min(result.nbytes_, MAX_BYTES)]]


@dask_deserialize.register(Placeholder)
def _deserialize(header: dict[str, int], frames: list[memoryview]) -> Placeholder:
    return Placeholder(header["nbytes"])
