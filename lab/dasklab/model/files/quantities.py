"""The number types that the files share. Units are suffixes of the names of the fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Amount = Annotated[float, Field(ge=0)]  # seconds, bytes, shares: a negative one is a mistake of the writer
Count = Annotated[int, Field(ge=0)]
Counters = dict[str, float]
