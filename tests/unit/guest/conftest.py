"""The guest program lies in the role that installs it."""

from __future__ import annotations

import sys

from dasklab.paths import ROLES

sys.path.append(str(ROLES / "base" / "files"))
