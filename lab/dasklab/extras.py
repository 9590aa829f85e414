"""Which extra of the distribution installs each optional package."""

from __future__ import annotations

from dasklab.errors import LabError

EXTRAS = {  # import name -> extra
    "ansible": "lab",
    "proxmoxer": "lab",
    "requests": "lab",
    "requests_toolbelt": "lab",
    "bokeh": "report",
    "jinja2": "report",
    "matplotlib": "report",
    "perfetto": "report",
}


def missing(error: ModuleNotFoundError) -> LabError | None:
    """Return the error to show if an optional package is not installed; None for any other module."""
    package = (error.name or "").partition(".")[0]
    return not_installed(package) if package in EXTRAS else None


def not_installed(package: str) -> LabError:
    """Return an error that names a package of ``EXTRAS`` and the command that installs it."""
    hint = f"pip install 'dasklab[{EXTRAS[package]}]'"
    return LabError(f"this needs {package}, which is not installed", hint)
