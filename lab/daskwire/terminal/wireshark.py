"""Install the Wireshark dissector ``dask.lua``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from daskwire.base.errors import WireError

DISSECTOR = Path(__file__).parents[1] / "dask.lua"
_DEFAULT = Path(".local/lib/wireshark/plugins")  # below the home folder
_FOLDER = re.compile(r"^Personal Lua Plugins:\s*(\S.*)$", re.MULTILINE)


def install_dissector() -> Path:
    """Copy the dissector to the folder of personal plugins. Returns the copy.

    Raises:
        WireError: the folder cannot be written.
    """
    folder = _plugin_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(DISSECTOR, folder))
    except OSError as error:
        raise WireError(f"{folder}: {error.strerror}") from error


def _plugin_folder() -> Path:
    """Return the folder that tshark names; without tshark, Wireshark's default on Linux."""
    if (tshark := shutil.which("tshark")) is not None:
        command = [tshark, "-G", "folders"]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if match := _FOLDER.search(output):
            return Path(match[1])
    return Path.home() / _DEFAULT
