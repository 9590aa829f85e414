"""Everyday situations whose bottleneck is known, in modules by theme. ``situation.py`` declares one."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import cloudpickle

from .situation import SITUATIONS, Situation, is_right_place

__all__ = ["SITUATIONS", "Situation", "is_right_place"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")

# Tasks come with their code, as those of a script do. Else importing this package were a worker's first work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
