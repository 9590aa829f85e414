"""Pickle the recorder's plugins with their code, for processes that run the same Python.

Code that was pickled by value is bytecode, which another version of Python cannot run: at worst it crashes
the process. So the pickle holds source text that loads the plugin only where the versions agree. Elsewhere,
or if Dask there lacks what the plugin imports, it makes a plugin that only says so when it is visited. This
holds for workers that join later, too: a plugin that cannot be loaded would keep them from starting.
"""

# mypy: disable-error-code="no-untyped-call,import-untyped"
from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle

from dasklab.model.settings import plain_dask
from dasklab.records import recorder

PYTHON = sys.version_info[:2]
LOAD = """
import pickle, sys, distributed

class NoRecorder(distributed.WorkerPlugin):
    def __init__(self, reason):
        self.reason = reason

    def setup(self, worker):
        worker.handlers["dasklab_take"] = self.decline

    def teardown(self, worker):
        worker.handlers.pop("dasklab_take", None)

    async def decline(self, record, summary=False):
        return {"failures": {"attach: " + self.reason: 1}, "more": False}

try:
    if sys.version_info[:2] == python:
        result = pickle.loads(plugin)
    else:
        result = NoRecorder("another Python")
except Exception as error:
    result = NoRecorder("Dask is too different: " + str(error))
"""


class _Guarded:
    """A plugin's pickle that is loaded only by the version of Python that made it."""

    def __init__(self, plugin: bytes, python: tuple[int, int]) -> None:
        self.names: dict[str, Any] = {"plugin": plugin, "python": python}

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("(exec(load), result)[1]", self.names | {"load": LOAD})


def pack_plugin(plugin: Any, python: tuple[int, int] = PYTHON) -> bytes:
    """Pickle a plugin with its code, so that nothing has to be installed where it goes."""
    own = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(recorder.__name__)]
    modules = [*own, plain_dask]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return pickle.dumps(_Guarded(cloudpickle.dumps(plugin), python))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def other_python(versions: Any) -> str:
    """Return the Python of a process that cannot load the plugins, from its answer to Dask's ``versions``."""
    packages = versions.get("packages") if isinstance(versions, Mapping) else None
    python = str(packages.get("python") or "") if isinstance(packages, Mapping) else ""
    own = ".".join(map(str, PYTHON))
    return "" if not python or f"{python}.".startswith(f"{own}.") else ".".join(python.split(".")[:3])
