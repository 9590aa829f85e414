"""Download Python packages as wheels on the controller, so that the lab's machines need no internet.

    python -m dasklab.wheels '{"dask": "2024.8.0"}'    prints the folder with the wheels

pip resolves the requested versions with all other pins as constraints. Only packages that differ from their
pins are downloaded, because the machines have the pinned ones already. Exit status 3 means that no such set
of packages exists; a playbook then reports the trial as unsupported.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dasklab.errors import LabError
from dasklab.model.settings.packages import PINS, pins
from dasklab.paths import cache

PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
UNSUPPORTED = 3
SOURCE_ONLY = ("pyspark",)  # PyPI has no wheels of these; they are pure Python, so we build the wheels here
NO_SUCH = ("No matching distribution", "ResolutionImpossible", "conflicting dependencies")


class NoSuchPackagesError(LabError):
    """A version does not exist, or it requires something that the pins exclude."""


def pip_arguments(command: str, *options: str) -> list[str]:
    """Return pip's arguments for the guests' platform (Debian 12, Python 3.11), whatever runs here. Pure."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    target = ["--python-version", "3.11", "--implementation", "cp", *platforms, "--only-binary=:all:"]
    return ["-m", "pip", command, "--quiet", "--disable-pip-version-check", *target, *options]


def wheelhouse(packages: Mapping[str, str]) -> Path:
    """Return the folder for the wheels of these versions, whether it exists or not."""
    identity = json.dumps(dict(sorted(packages.items()))) + PINS.read_text(encoding="utf-8")
    return cache() / "wheels" / hashlib.sha256(identity.encode()).hexdigest()[:12]


def fetch(packages: Mapping[str, str]) -> Path:
    """Download the wheels unless they exist, and return their folder.

    Args:
        packages: versions to use instead of the pinned ones, by package.

    Returns:
        The folder; its ``requirements.txt`` lists the wheels.

    Raises:
        NoSuchPackagesError: pip finds no consistent set of packages.
        LabError: pip failed for another reason, for example without internet.
    """
    folder = wheelhouse(packages)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=folder.parent) as scratch:
                _download(packages, Path(scratch))
                (Path(scratch) / "wheels").rename(folder)
    return folder


def _download(packages: Mapping[str, str], scratch: Path) -> None:
    built = scratch / "built"
    built.mkdir()
    _build({name: version for name, version in packages.items() if name in SOURCE_ONLY}, built)
    different = not_pinned(_resolve(packages, scratch, built))
    wheels, requirements = scratch / "wheels", scratch / "requirements.txt"
    requirements.write_text(
        "".join(f"{name}=={version}\n" for name, version in sorted(different.items())), encoding="utf-8"
    )
    sources = ["--no-deps", "--find-links", str(built), "--requirement", str(requirements)]
    _pip(pip_arguments("download", *sources, "--dest", str(wheels)))
    shutil.move(requirements, wheels)


def _build(packages: Mapping[str, str], folder: Path) -> None:
    """Build wheels from source distributions."""
    for name, version in packages.items():
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(folder)]
        _pip(["-m", "pip", "wheel", *options, f"{name}=={version}"])


def _resolve(packages: Mapping[str, str], scratch: Path, built: Path) -> dict[str, str]:
    """Return all packages (name -> version) that pip would install for these versions."""
    other_pins = {name: version for name, version in pins().items() if name not in packages}
    constraints, report = scratch / "constraints.txt", scratch / "report.json"
    constraints.write_text(
        "".join(f"{name}=={version}\n" for name, version in other_pins.items()), encoding="utf-8"
    )
    dask = packages.get("dask", pins()["dask"])
    requirements = [f"{name}=={version}" for name, version in {**other_pins, **packages}.items()]
    dry_run = ["--dry-run", "--ignore-installed", "--target", str(scratch / "none"), "--report", str(report)]
    sources = ["--find-links", str(built), "--constraint", str(constraints)]
    _pip(pip_arguments("install", *dry_run, *sources, f"dask[dataframe]=={dask}", *requirements))
    packages_found = [
        entry["metadata"] for entry in json.loads(report.read_text(encoding="utf-8"))["install"]
    ]
    return {entry["name"].lower().replace("_", "-"): entry["version"] for entry in packages_found}


def not_pinned(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the packages whose version differs from the pin, or that have none. Pure."""
    return {name: version for name, version in packages.items() if pins().get(name) != version}


def _pip(arguments: list[str]) -> None:
    process = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise pip_error(process.stderr)


def pip_error(stderr: str) -> LabError:
    """Return pip's error as one line, and tell a version that does not exist from a failed download. Pure.

    Of several errors the one in ``NO_SUCH`` is printed: it is short, where others list every version of a
    package.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    line = next((line for line in errors if line.startswith(NO_SUCH)), (errors or lines or ["it failed"])[0])
    no_index = "from versions: none" in stderr  # no package index answered
    if any(words in stderr for words in NO_SUCH) and not no_index:
        return NoSuchPackagesError(line)
    return LabError(f"pip: {line}{' (no package index answered)' if no_index else ''}")


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    """Let one process download at a time; the next one then finds the wheels."""
    import fcntl  # on Linux only, as the lab is

    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Print the folder of the wheels for the versions in the first argument, a JSON object."""
    try:
        print(fetch(json.loads(sys.argv[1])))
    except NoSuchPackagesError as error:
        print(error.message, file=sys.stderr)
        sys.exit(UNSUPPORTED)
    except LabError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
