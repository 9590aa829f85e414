"""The golden image: one disk and one container template, made once on this machine, for all guests.

A tree of files (debian.py) becomes a disk that boots (bootable.py), of which qemu-img makes a qcow2, and a
template (template.py). Both are named by the hash of their recipe: another recipe is another image. As root
or, with user namespaces, as an ordinary user.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from minipve import process
from minipve.atomic import replaced
from minipve.image import bootable_disk, build_tools, container_template, debian, direct_boot, wheels
from minipve.paths import Paths
from minipve.progress import Progress, Steps
from minipve.user_error import UserError

# Seconds of each step on two 2.5 GHz cores: they only serve to say how long it will take.
STEPS = Steps(wheels=4, debian=30, template=4, file_system=4, kernel=1, convert=3)


def recipe_hash(requirements: Path | None) -> str:
    """What the image is made of, in one word: suite, the tree's ingredients, the form of the disk.

    Raises:
        UserError: the requirements file cannot be read.
    """
    if requirements and not requirements.is_file():
        raise UserError(f"requirements file {requirements} does not exist")
    digest = hashlib.sha256(debian.SUITE.encode())
    for file in [
        *debian.ingredients(requirements),
        Path(bootable_disk.__file__),
        Path(container_template.__file__),
    ]:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def image_path(paths: Paths) -> Path:
    """Where the image of the present recipe is or will be."""
    recipe = recipe_hash(paths.requirements)
    return paths.images / recipe / f"debian-{recipe[:12]}.qcow2"


def template_path(paths: Paths) -> Path:
    """Where the container template of the present recipe is or will be: beside the image."""
    image = image_path(paths)
    return image.with_name(image.stem + container_template.SUFFIX)


def build(paths: Paths, progress: Progress) -> Path:
    """The golden image, and the template beside it, built unless they are there.

    ``progress`` is told what happens and how long yet.
    """
    image = image_path(paths)
    if image.exists():
        return image
    process.need(*debian.tools(), "mke2fs", "debugfs", "qemu-img", "tar", "zstd")
    paths.images.mkdir(parents=True, exist_ok=True)
    try:
        with build_tools.alone(paths.images / ".lock", progress):
            if not image.exists():
                build_tools.require_space(paths.images)
                _build(paths, image, progress)
    except process.MachineError as error:
        raise UserError(f"the golden image was not built: {error}") from error
    return image


def _build(paths: Paths, image: Path, progress: Progress) -> None:
    """Every step in a scratch directory, removed whatever happens; the result appears by a rename."""
    with STEPS.run(progress) as step, build_tools.scratch_directory(paths.images) as scratch:
        with step("wheels", "downloading Python packages"):
            packages = wheels.fetch(paths)
        with step("debian", "installing Debian and the packages") as told:
            tree = debian.make(scratch, packages, told)
        fresh = scratch / "done" / image.name
        fresh.parent.mkdir()
        with step("template", "writing the container template"):
            container_template.write(tree, fresh.with_name(template_path(paths).name))
        with step("file_system", "writing the file system"):
            raw = scratch / "disk.raw"
            bootable_disk.write(tree, raw)
        with step("kernel", "taking out the kernel"), direct_boot.using(paths):
            direct_boot.extract(raw, paths)
        with step("convert", "writing the image"):
            process.run(["qemu-img", "convert", "-W", "-O", "qcow2", raw, fresh], timeout_s=600)
        fresh.parent.rename(image.parent)


def export_file(image: Path, target: Path) -> Path:
    """Return the file that a copy of the image goes to: ``target``, or in a folder the image's own name.

    Raises:
        UserError: the file cannot be written there, or no Proxmox VE takes it under that name.
    """
    file, suffix = target / image.name if target.is_dir() else target, "".join(image.suffixes)
    if not file.name.endswith(suffix):
        raise UserError(f"{file}: a Proxmox VE takes this image only under a name that ends in {suffix}")
    if not file.parent.is_dir():
        raise UserError(f"{file.parent} is no directory")
    if not os.access(file.parent, os.W_OK):
        raise UserError(f"{file} cannot be written: no write access to {file.parent}")
    return file


def export(image: Path, target: Path) -> Path:
    """Write a compressed copy to carry elsewhere; return its file."""
    file, suffix = export_file(image, target), "".join(image.suffixes)
    convert = ["qemu-img", "convert", "-c", "-W", "-O", "qcow2", "-o", "compression_type=zstd"]
    words = convert if suffix == ".qcow2" else ["cp"]
    try:
        with replaced(file, 0o644) as draft:
            process.run([*words, image, draft], timeout_s=1800)
    except process.MachineError as error:
        raise UserError(f"{file} was not written: {error}") from error
    return file
