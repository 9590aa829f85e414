"""The golden image: the bootable disk and the container template that guests are created from.

Both come from one root file system (debian.py): the disk through bootable_disk.py and qemu-img, the
template through container_template.py. The disk's kernel is kept beside it (direct_boot.py). All are in a
folder named by the hash of their recipe, so a changed recipe gives a new image. The build runs as root, or as
an ordinary user with user namespaces.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from minipve.base import process
from minipve.base.atomic import replaced
from minipve.base.errors import MachineError, UserError
from minipve.base.paths import Paths
from minipve.base.process import Progress, Steps, silent
from minipve.image import build_tools, debian, direct_boot, outputs

# Seconds of each step on two 2.5 GHz cores, to estimate the time left.
STEPS = Steps(wheels=4, debian=30, template=4, file_system=4, kernel=1, convert=3)
PYTHON = "3.11"  # the version in the guests' Debian
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (36, 34, 31, 28, 27, 24, 17, 12, 5)]


def recipe_hash(requirements: Path | None) -> str:
    """Return the hash of what determines the image: Debian release, source files, formats of what is kept.

    Raises:
        UserError: the requirements file cannot be read.
    """
    if requirements and not requirements.is_file():
        raise UserError(f"requirements file {requirements} does not exist")
    digest = hashlib.sha256(debian.SUITE.encode())
    for file in [
        *debian.source_files(requirements),
        Path(outputs.__file__),
        Path(outputs.__file__),
        Path(direct_boot.__file__),
    ]:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def image_path(paths: Paths) -> Path:
    """The path of the current recipe's image, whether it exists or not."""
    recipe = recipe_hash(paths.requirements)
    return paths.images / recipe / f"debian-{recipe[:12]}.qcow2"


def template_path(paths: Paths) -> Path:
    """The path of the current recipe's container template, next to the image."""
    image = image_path(paths)
    return image.with_name(image.stem + outputs.SUFFIX)


def files(paths: Paths) -> dict[str, str]:
    """Return the images of the current recipe, as ``endpoint.json`` names them."""
    return {"image_file": str(image_path(paths)), "template_file": str(template_path(paths))}


def build(paths: Paths, progress: Progress) -> Path:
    """Build the golden image and its template, unless they exist.

    Args:
        paths: where the cache is; which Python packages to install.
        progress: called with each step and the estimated time left.

    Returns:
        The path of the image.

    Raises:
        UserError: a program or disk space is missing, or the build failed.
    """
    image = image_path(paths)
    if image.exists():
        return image
    process.require_tools(*debian.tools(), "mke2fs", "debugfs", "qemu-img", "tar", "zstd")
    paths.images.mkdir(parents=True, exist_ok=True)
    try:
        with build_tools.exclusive(paths.images / ".lock", progress):
            if not image.exists():
                build_tools.require_space(paths.images)
                _build(paths, image, progress)
    except MachineError as error:
        raise UserError(f"the golden image was not built: {error}") from error
    return image


def _build(paths: Paths, image: Path, progress: Progress) -> None:
    """Do each step in a scratch directory; the result appears by a rename."""
    with STEPS.run(progress) as step, build_tools.scratch_directory(paths.images) as scratch:
        with step("wheels", "downloading Python packages"):
            packages = fetch_wheels(paths)
        with step("debian", "installing Debian and the packages") as debian_progress:
            rootfs = debian.make(scratch, packages, debian_progress)
        draft = scratch / "result" / image.name
        draft.parent.mkdir()
        with step("template", "writing the container template"):
            outputs.write_template(rootfs, draft.with_name(template_path(paths).name))
        with step("file_system", "writing the file system"):
            raw = scratch / "disk.raw"
            outputs.write_disk(rootfs, raw)
        with step("kernel", "extracting the kernel"):
            direct_boot.keep(raw, draft.parent)
        with step("convert", "writing the image"):
            process.run(["qemu-img", "convert", "-W", "-O", "qcow2", raw, draft], timeout_s=600)
        draft.parent.rename(image.parent)


def export_file(image: Path, target: Path) -> Path:
    """Return the file for a copy of the image: ``target``, or a file with the image's name in that folder.

    Raises:
        UserError: the file cannot be written, or no Proxmox VE accepts an image with that name.
    """
    file, suffix = target / image.name if target.is_dir() else target, "".join(image.suffixes)
    if not file.name.endswith(suffix):
        raise UserError(f"{file}: Proxmox VE accepts this image only if its name ends in {suffix}")
    if not file.parent.is_dir():
        raise UserError(f"{file.parent} is not a directory")
    if not os.access(file.parent, os.W_OK):
        raise UserError(f"{file} cannot be written: no write access to {file.parent}")
    return file


def export(image: Path, target: Path) -> Path:
    """Write a compressed copy of the image; return its file."""
    file, suffix = export_file(image, target), "".join(image.suffixes)
    convert = ["qemu-img", "convert", "-c", "-W", "-O", "qcow2", "-o", "compression_type=zstd"]
    words = convert if suffix == ".qcow2" else ["cp"]
    try:
        with replaced(file, 0o644) as draft:
            process.run([*words, image, draft], timeout_s=1800)
    except MachineError as error:
        raise UserError(f"{file} was not written: {error}") from error
    return file


def wheels_directory(requirements: Path, cache: Path) -> Path:
    """The folder of the wheels for a requirements file, whether it exists or not."""
    return cache / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]


def fetch_wheels(paths: Paths) -> Path | None:
    """Return the folder with the wheels for ``paths.requirements``, downloaded if need be.

    Guests install from it and need no network. None stands for no packages.
    """
    if paths.requirements is None:
        return None
    target = wheels_directory(paths.requirements, paths.wheels)
    if target.exists():
        return target
    paths.wheels.mkdir(parents=True, exist_ok=True)
    with build_tools.scratch_directory(paths.wheels) as scratch:
        build_tools.run_logged(_download(paths.requirements, scratch / "new"), scratch / "pip.log", silent)
        shutil.copy(paths.requirements, scratch / "new" / "requirements.txt")
        (scratch / "new").rename(target)
    return target


def _download(requirements: Path, target: Path) -> list[str]:
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    target_system = ["--python-version", PYTHON, "--implementation", "cp", *platforms, "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return [*pip, *target_system, "--dest", str(target), "--requirement", str(requirements)]
