"""Packages as wheels, downloaded once on the controller: machines install from them, and need no network.

    python -m dasklab.wheels '{"dask": "2024.8.0"}'    the folder of what an environment has beside the pins

pip resolves what is asked with the pins as constraints; only what differs from them is downloaded. Exit
status 3 says that there is no such set of packages, as the lab's programs say what cannot be done.
"""

from __future__ import annotations

import fcntl
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
from dasklab.model.packages import PINS, pins
from dasklab.paths import cache

PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
UNSUPPORTED = 3
SOURCES = ("pyspark",)  # what there are no wheels of: one is made, of what is for any machine anyway
NO_SUCH = ("No matching distribution", "ResolutionImpossible", "conflicting dependencies")


class NoSuchPackagesError(LabError):
    """There is no such version, or what it needs and the pins exclude each other."""


def pip_words(command: str, *words: str) -> list[str]:
    """pip's arguments for what Debian 12's Python 3.11 will install, whatever runs here (pure)."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    target = ["--python-version", "3.11", "--implementation", "cp", *platforms, "--only-binary=:all:"]
    return ["-m", "pip", command, "--quiet", "--disable-pip-version-check", *target, *words]


def house(packages: Mapping[str, str]) -> Path:
    """Where the wheels for these versions instead of the pinned ones are or will be."""
    named = json.dumps(dict(sorted(packages.items()))) + PINS.read_text()
    return cache() / "wheels" / hashlib.sha256(named.encode()).hexdigest()[:12]


def fetch(packages: Mapping[str, str]) -> Path:
    """The wheels, downloaded unless they are there already; ``requirements.txt`` among them names each.

    Raises:
        NoSuchPackagesError: pip finds no set of packages like that.
        LabError: pip could not look for them.
    """
    there = house(packages)
    there.parent.mkdir(parents=True, exist_ok=True)
    with _alone(there.with_suffix(".lock")):
        if not there.exists():
            with tempfile.TemporaryDirectory(prefix=".wheels-", dir=there.parent) as scratch:
                _download(packages, Path(scratch))
                (Path(scratch) / "wheels").rename(there)
    return there


def _download(packages: Mapping[str, str], scratch: Path) -> None:
    made = scratch / "made"
    made.mkdir()
    _make({name: version for name, version in packages.items() if name in SOURCES}, made)
    differing = beside_pins(_resolve(packages, scratch, made))
    wheels, named = scratch / "wheels", scratch / "requirements.txt"
    named.write_text("".join(f"{name}=={version}\n" for name, version in sorted(differing.items())))
    chosen = ["--no-deps", "--find-links", str(made), "--dest", str(wheels), "--requirement", str(named)]
    _pip(pip_words("download", *chosen))
    shutil.move(named, wheels)


def _make(packages: Mapping[str, str], made: Path) -> None:
    """Wheels of what is given as source alone."""
    for name, version in packages.items():
        plain = ["--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(made)]
        _pip(["-m", "pip", "wheel", *plain, f"{name}=={version}"])


def _resolve(packages: Mapping[str, str], scratch: Path, made: Path) -> dict[str, str]:
    """All packages of an environment with these versions, as pip would install them."""
    kept = {name: version for name, version in pins().items() if name not in packages}
    constraints, report = scratch / "constraints.txt", scratch / "report.json"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in kept.items()))
    asked = [f"{name}=={version}" for name, version in {**kept, **packages}.items()]
    dask = packages.get("dask", pins()["dask"])
    needed = [f"dask[dataframe]=={dask}", *asked]
    there = ["--dry-run", "--ignore-installed", "--target", str(scratch / "none"), "--report", str(report)]
    with_made = ["--find-links", str(made), "--constraint", str(constraints)]
    _pip(pip_words("install", *there, *with_made, *needed))
    found = [each["metadata"] for each in json.loads(report.read_text())["install"]]
    return {each["name"].lower().replace("_", "-"): each["version"] for each in found}


def beside_pins(found: Mapping[str, str]) -> dict[str, str]:
    """Those that are not there already, in this version (pure)."""
    return {name: version for name, version in found.items() if pins().get(name) != version}


def _pip(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise complaint(done.stderr)


def complaint(said: str) -> LabError:
    """What pip said, in a line: that there is no such thing, or that it could not look (pure)."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    line = next((line for line in errors if line.startswith(NO_SUCH)), (errors or lines or ["it failed"])[0])
    nobody = "from versions: none" in said  # no index answered
    if any(words in said for words in NO_SUCH) and not nobody:
        return NoSuchPackagesError(line)
    return LabError(f"pip: {line}")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One download at a time of the same; the second waits and then finds it there."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Print the directory."""
    try:
        print(fetch(json.loads(sys.argv[1])))
    except NoSuchPackagesError as error:
        print(error.message, file=sys.stderr)
        sys.exit(UNSUPPORTED)
    except LabError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
