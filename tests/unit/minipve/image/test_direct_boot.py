"""A machine boots the kernel of the golden image that its disk comes from, and no other file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from minipve.base.errors import MachineError
from minipve.base.paths import Paths
from minipve.image import direct_boot
from minipve.storage import qemu_img

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool, path=SYSTEM_PATH) is None for tool in ("qemu-img", "mke2fs")),
    reason="qemu-img and mke2fs are needed",
)
FILES = {"kernel": "an ELF file", "initrd": "070701", "cmdline": "quiet console=ttyS0\n"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "the cache")


def disk_of(folder: Path, files: dict[str, str]) -> Path:
    """Create a raw disk with these files in its file system, as the build of a golden image does."""
    inside = folder / "tree" / direct_boot.INSIDE.strip("/")
    inside.mkdir(parents=True)
    for name, content in files.items():
        (inside / name).write_text(content)
    raw = folder / "disk.raw"
    words = ["mke2fs", "-q", "-t", "ext4", "-d", folder / "tree", raw, "8M"]
    subprocess.run(words, check=True, env={"PATH": SYSTEM_PATH})
    return raw


def golden_image(paths: Paths, recipe: str, **files: str) -> Path:
    """Create the disk of a golden image with its kernel beside it."""
    folder = paths.images / recipe
    folder.mkdir(parents=True)
    raw = disk_of(folder, FILES | files)
    direct_boot.keep(raw, folder)
    shutil.rmtree(folder / "tree")
    return raw


def imported(disk: Path, target: Path) -> Path:
    qemu_img.import_image(disk, target)
    return target


def linked(disk: Path, target: Path) -> Path:
    qemu_img.linked_clone(imported(disk, target.with_name("base.qcow2")), target)
    return target


def rolled_back(disk: Path, target: Path) -> Path:
    qemu_img.snapshot(imported(disk, target), "before")
    qemu_img.roll_back(target, "before")
    return target


@pytest.mark.parametrize("derive", [imported, linked, rolled_back])
def test_disks_of_two_images_boot_the_kernel_of_their_own(
    derive: Callable[[Path, Path], Path], tmp_path: Path, paths: Paths
) -> None:
    for recipe in ("one", "two"):
        raw = golden_image(paths, recipe, kernel=f"kernel {recipe}")
        boot = direct_boot.of_disk(derive(raw, tmp_path / recipe / "disk.qcow2"), paths)
        assert boot is not None and boot.cmdline == "quiet console=ttyS0"
        assert (boot.kernel.read_text(), boot.initrd.read_text()) == (f"kernel {recipe}", "070701")
        assert boot.kernel.is_relative_to(paths.images / recipe)


@pytest.mark.parametrize("file", FILES)
def test_each_file_is_part_of_the_digest(file: str, paths: Paths) -> None:
    golden_image(paths, "one")
    golden_image(paths, "two", **{file: "other"})
    assert len({folder.name for folder in paths.images.glob("*/boot-*")}) == 2


@pytest.mark.parametrize(
    "sector",
    [
        b"",
        direct_boot.boot_marker("0" * 64),
        direct_boot.boot_marker("*" * 64),
        direct_boot.boot_marker("/../" * 16),
        direct_boot.boot_marker("*"),
    ],
    ids=["none", "no image's", "pattern", "path", "any"],
)
def test_disk_of_another_origin_has_no_kernel(sector: bytes, tmp_path: Path, paths: Paths) -> None:
    """Such as one of an image that an earlier version built: its own boot loader starts it."""
    golden_image(paths, "one")
    (tmp_path / "other").mkdir()
    raw = disk_of(tmp_path / "other", FILES)
    with raw.open("r+b") as stream:
        stream.seek(512)
        stream.write(sector)
    assert direct_boot.of_disk(raw, paths) is None


def test_image_without_a_file_to_boot_is_not_built(tmp_path: Path) -> None:
    raw = disk_of(tmp_path, FILES | {"initrd": ""})
    with pytest.raises(MachineError, match=r"no /boot/direct/initrd in the file system of disk\.raw"):
        direct_boot.keep(raw, tmp_path)


def test_newest_kernel_is_that_of_the_image_built_last(paths: Paths) -> None:
    """An image of an earlier version has none."""
    earlier = paths.images / "earlier" / "debian-0123.qcow2"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    assert direct_boot.newest_kernel(paths) is None
    for recipe, built_s in (("new", 2000), ("old", 1000)):
        golden_image(paths, recipe, kernel=recipe)
        kernel = next((paths.images / recipe).glob("boot-*/kernel"))
        os.utime(kernel, (built_s, built_s))
    newest = direct_boot.newest_kernel(paths)
    assert newest is not None and newest.read_text() == "new"


def test_unreadable_disk_is_an_error(tmp_path: Path, paths: Paths) -> None:
    (tmp_path / "no.qcow2").write_bytes(b"no image")
    with pytest.raises(MachineError, match="not in qcow2 format"):
        direct_boot.of_disk(tmp_path / "no.qcow2", paths)
