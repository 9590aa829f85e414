"""The golden image: one Debian with Dask, built once on this machine, from which all machines are cloned.

mmdebstrap lays Debian down and `guest/customize.sh` turns it into the lab's; mke2fs writes the tree into a
whole-disk ext4 file system without loop mounts; qemu-img makes the qcow2. Everything that is needed comes
from the package sources of this host, so guests need no network. The image is named by the hash of its
recipe: another recipe is another image. As root or, with user namespaces, as an ordinary user.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.errors import LabError
from lab.minipve import process
from lab.minipve.image import disks, sources
from lab.minipve.paths import Paths
from lab.minipve.progress import Progress, Steps, silent

SUITE = "bookworm"
SIZE_GIB = 8
SPACE_GIB = 5
GUEST = Path(__file__).with_name("guest")
REQUIREMENTS = Path(__file__).parents[3] / "roles" / "dask" / "files" / "requirements.txt"
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]
# Seconds of each step on two 2.5 GHz cores: they only serve to say how long it will take.
STEPS = Steps(wheels=4, debian=30, file_system=4, kernel=1, convert=3)
DEBIAN_LINES = 950


def recipe_hash() -> str:
    """What the image is made of, in one word: the files below guest/, Dask's pins, suite and size."""
    digest = hashlib.sha256(f"{SUITE} {SIZE_GIB}".encode())
    for file in [*sorted(file for file in GUEST.rglob("*") if file.is_file()), REQUIREMENTS]:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def image_path(paths: Paths) -> Path:
    """Where the image of the present recipe is or will be."""
    recipe = recipe_hash()
    return paths.images / recipe / f"dasklab-{recipe[:12]}.qcow2"


def wheelhouse(paths: Paths) -> Path:
    """Where the wheels of the present pins are or will be."""
    return paths.wheels / hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]


def build(paths: Paths, progress: Progress) -> Path:
    """The golden image, built unless it is there; ``progress`` is told what happens and how long yet."""
    image = image_path(paths)
    if image.exists():
        return image
    process.need("mmdebstrap", "mke2fs", "debugfs", "qemu-img", *([] if _root() else ["newuidmap"]))
    paths.images.mkdir(parents=True, exist_ok=True)
    try:
        with _alone(paths.images / ".lock", progress):
            if not image.exists():
                _require_space(paths.images)
                _build(paths, image, progress)
    except process.MachineError as error:
        raise LabError(f"the golden image was not built: {error}") from error
    return image


def _build(paths: Paths, image: Path, progress: Progress) -> None:
    """Every step in a scratch directory, removed whatever happens; the result appears by a rename."""
    with STEPS.run(progress) as step, _scratch(paths.images) as scratch:
        with step("wheels", "downloading Dask's wheels"):
            wheels = fetch_wheels(paths)
        with step("debian", "installing Debian and Dask") as told:
            _debian(scratch, wheels, told)
        with step("file_system", "writing the file system"):
            raw = _file_system(scratch)
        with step("kernel", "taking out the kernel"):
            disks.extract_boot(raw, paths)
        with step("convert", "writing the image"):
            fresh = scratch / "done" / image.name
            fresh.parent.mkdir()
            process.run(["qemu-img", "convert", "-W", "-O", "qcow2", raw, fresh], timeout_s=600)
        fresh.parent.rename(image.parent)


def fetch_wheels(paths: Paths) -> Path:
    """The wheelhouse of the present pins, downloaded by pip unless it is there already."""
    house = wheelhouse(paths)
    if house.exists():
        return house
    paths.wheels.mkdir(parents=True, exist_ok=True)
    with _scratch(paths.wheels) as scratch:
        _run_logged([sys.executable, *wheel_words(scratch / "new")], scratch / "pip.log", silent)
        shutil.copy(REQUIREMENTS, scratch / "new" / "requirements.txt")
        (scratch / "new").rename(house)
    return house


def wheel_words(directory: Path) -> list[str]:
    """pip's arguments to download what Debian 12's Python 3.11 will install, whatever runs here (pure)."""
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    return [
        *(
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
        ),
        *("--python-version", "3.11", "--implementation", "cp", *platforms),
        *("--dest", str(directory), "--requirement", str(REQUIREMENTS)),
    ]


def debian_words(target: Path, stage: Path, mirrors: list[str], options: list[str]) -> list[str]:
    """mmdebstrap's command line (pure but for the package list): a directory as root, else a tar file."""
    packages = ",".join((GUEST / "packages.txt").read_text().split())
    return [
        *("mmdebstrap", "--verbose", "--variant=apt", f"--include={packages}"),
        *(("--mode=root", "--format=directory") if _root() else ("--mode=unshare", "--format=tar")),
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={option}" for option in options),
        f"--extract-hook=copy-in {stage}/dpkg.cfg /etc/dpkg/dpkg.cfg.d",
        f"--customize-hook=copy-in {stage} /",
        f"--customize-hook=copy-in {stage}/rootfs/etc /",
        '--customize-hook=chroot "$1" sh /stage/customize.sh',
        *(SUITE, str(target), *mirrors),
    ]


def _debian(scratch: Path, wheels: Path, told: Progress) -> None:
    stage = scratch / "stage"
    shutil.copytree(GUEST, stage)
    shutil.copytree(wheels, stage / "wheels", copy_function=_link)
    words = debian_words(scratch / "root", stage, sources.mirrors(SUITE), sources.options())
    # INITRD=No: Debian's own initramfs would take as long as all else, and nobody boots it.
    _run_logged(words, scratch / "mmdebstrap.log", told, {"INITRD": "No", "LC_ALL": "C"}, DEBIAN_LINES)


def _file_system(scratch: Path) -> Path:
    """The tree as a sparse ext4 image. As an ordinary user it is unpacked where that user is root.

    Device nodes, which that one cannot make, are left out: the kernel makes its own.
    """
    root, raw = scratch / "root", scratch / "disk.raw"
    words = [
        process.which("mke2fs") or "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-O",
        "^has_journal,^metadata_csum",
        "-m",
        "0",
        "-L",
        "dasklab",
    ]
    if _root():
        process.run([*words, "-d", root, raw, f"{SIZE_GIB}G"], timeout_s=600)
        return raw
    tree = scratch / "tree"
    unpack = 'mkdir "$1" && tar --exclude="./dev/*" -xf "$2" -C "$1" && shift 2 && "$@"'
    script = f'{unpack}; code=$?; rm -rf "{tree}"; exit $code'
    enter = ["unshare", "--user", "--map-root-user", "--map-auto", "sh", "-c", script, "sh"]
    process.run([*enter, tree, root, *words, "-d", tree, raw, f"{SIZE_GIB}G"], timeout_s=600)
    return raw


def _run_logged(
    words: list[str],
    log: Path,
    told: Progress,
    environment: dict[str, str] | None = None,
    expected_lines: int = 1,
) -> None:
    """Run a long command, its output to ``log``; its lines tell how far it is."""
    env = {**os.environ, **(environment or {}), "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    lines: list[str] = []
    with (
        log.open("w") as file,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                file.write(line)
                lines.append(line.strip())
                told(lines[-1], min(len(lines) / expected_lines, 1.0), None)
        except BaseException:
            child.terminate()  # mmdebstrap then unmounts and cleans up by itself
            raise
    if child.returncode != 0:
        raise LabError(f"{Path(words[0]).name} failed: {_complaint(lines)}", "\n  ".join(lines[-8:]))


def _complaint(lines: list[str]) -> str:
    """The line of a log that most likely says what is wrong."""
    marks = ("E:", "ERROR:", "error:")
    return next((line for line in lines if line.startswith(marks)), lines[-1] if lines else "no output")


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A directory that is removed on the way out, never across a mount that a killed child may have left."""
    path = Path(tempfile.mkdtemp(prefix=".build-", dir=parent))
    path.chmod(0o755)
    try:
        yield path
    finally:
        process.run(["rm", "-rf", "--one-file-system", path], timeout_s=300)


@contextlib.contextmanager
def _alone(lock: Path, progress: Progress) -> Iterator[None]:
    """One build at a time for all of a user's labs; the second waits and then finds the image there."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building the image: waiting", 0.0, None)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_space(directory: Path) -> None:
    free_gib = shutil.disk_usage(directory).free / 2**30
    if free_gib < SPACE_GIB:
        raise LabError(
            f"the golden image needs {SPACE_GIB} GiB below {directory}, {free_gib:.1f} GiB are free",
            "free some space or set DASKLAB_CACHE to a directory on a larger disk",
        )


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _root() -> bool:
    return os.geteuid() == 0
