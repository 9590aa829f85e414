"""A machine boots what its own disk contains, whatever other disks claim to be."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from minipve.image import direct_boot, ext4, nbd, qemu_img
from minipve.paths import Paths
from minipve.process import MachineError

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
pytestmark = pytest.mark.skipif(
    any(shutil.which(tool, path=SYSTEM_PATH) is None for tool in ("qemu-nbd", "mke2fs")),
    reason="qemu-nbd and mke2fs are needed",
)
ENTRY = "title A system\nversion 6\nlinux /boot/vmlinux\ninitrd /boot/initrd\noptions quiet console=ttyS0\n"
KERNEL, INITRD = b"\x7fELF the kernel", b"070701 the initramfs"
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def tree(folder: Path, entry: str | None = ENTRY, kernel: bytes = KERNEL) -> Path:
    (folder / "boot/loader/entries").mkdir(parents=True)
    (folder / "boot/vmlinux").write_bytes(kernel)
    (folder / "boot/initrd").write_bytes(INITRD)
    if entry is not None:
        (folder / "boot/loader/entries/one.conf").write_text(entry)
    return folder


def image(folder: Path, *options: str, size: str = "8M") -> Path:
    """Create a whole-disk ext4 image of a folder, as qcow2."""
    raw, qcow2 = folder.with_suffix(".raw"), folder.with_suffix(".qcow2")
    words = ["mke2fs", "-q", "-t", "ext4", "-U", UUID, *options, "-d", folder, raw, size]
    subprocess.run(words, check=True, env={"PATH": SYSTEM_PATH})
    qemu_img.import_image(raw, qcow2)
    return qcow2


def cached(paths: Paths) -> set[str]:
    return {path.name for path in paths.boot.iterdir() if path.name != ".lock"}


def test_clone_and_base_share_one_cached_kernel(tmp_path: Path, paths: Paths) -> None:
    base, clone = image(tree(tmp_path / "a")), tmp_path / "9101" / "clone.qcow2"
    qemu_img.linked_clone(base, clone)
    for disk in (base, clone):
        boot = direct_boot.extract(disk, paths)
        assert boot is not None and boot.cmdline == "quiet console=ttyS0"
        assert (boot.kernel.read_bytes(), boot.initrd.read_bytes()) == (KERNEL, INITRD)
    assert len(cached(paths)) == 1


@pytest.mark.parametrize("attacker_first", [True, False])
def test_images_with_equal_uuids_boot_their_own_kernels(
    tmp_path: Path, paths: Paths, attacker_first: bool
) -> None:
    evil = image(tree(tmp_path / "evil", ENTRY.replace("quiet", "init=/bin/evil"), b"\x7fELF evil"))
    good = image(tree(tmp_path / "good"))
    for disk in (evil, good) if attacker_first else (good, evil):
        boot = direct_boot.extract(disk, paths)
        assert boot is not None
        assert ("evil" in boot.cmdline, b"evil" in boot.kernel.read_bytes()) == (disk == evil, disk == evil)


@pytest.mark.parametrize("change", ["kernel", "options"])
def test_changed_kernel_or_command_line_takes_effect(tmp_path: Path, paths: Paths, change: str) -> None:
    before = direct_boot.extract(image(tree(tmp_path / "a")), paths)
    kernel, entry = (
        (b"\x7fELF newer", ENTRY) if change == "kernel" else (KERNEL, ENTRY + "# \noptions loud\n")
    )
    after = direct_boot.extract(image(tree(tmp_path / "b", entry, kernel)), paths)
    assert before is not None and after is not None
    assert after.kernel.read_bytes() == kernel
    assert after.cmdline == ("loud" if change == "options" else "quiet console=ttyS0")


def test_cache_keeps_the_latest_within_its_limit(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths.boot / UUID).mkdir(parents=True)  # of an earlier version, without a digest as its name
    monkeypatch.setattr(direct_boot, "MAX_CACHE_BYTES", 3 * (len(KERNEL) + len(INITRD)))
    names = []
    for number in range(6):
        with direct_boot.cache_in_use(paths):
            kernel = KERNEL.replace(b"the", f"{number:03}".encode())
            boot = direct_boot.extract(image(tree(tmp_path / f"disk{number}", kernel=kernel)), paths)
            assert boot is not None
            os.utime(boot.kernel.parent, (number, number))
            names.append(boot.kernel.parent.name)
    assert cached(paths) == set(names[-3:])


def test_sweep_waits_for_other_users(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_boot, "MAX_CACHE_BYTES", 0)
    with direct_boot.cache_in_use(paths):
        boot = direct_boot.extract(image(tree(tmp_path / "a")), paths)
        assert boot is not None
        with direct_boot.cache_in_use(paths):
            pass
        assert boot.kernel.read_bytes() == KERNEL
    assert cached(paths) == set()


def test_no_direct_boot_without_a_boot_entry(tmp_path: Path, paths: Paths) -> None:
    qemu_img.create(tmp_path / "empty.qcow2", 2**20)
    assert direct_boot.extract(tmp_path / "empty.qcow2", paths) is None
    assert direct_boot.extract(image(tree(tmp_path / "none", None)), paths) is None
    assert direct_boot.extract(image(tree(tmp_path / "old"), "-O", "^extent,^64bit"), paths) is None


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (ENTRY.replace("vmlinux", "nothing"), "no /boot/nothing in the file system"),
        (ENTRY.replace("/boot/vmlinux", "/boot"), "no /boot in the file system"),
        (ENTRY.replace("/boot/vmlinux", "/boot/vmlinux /etc/cron.d/evil"), "names an impossible file"),
        (ENTRY.replace("linux ", "efi "), "names an impossible file"),
        (ENTRY.replace("vmlinux", "empty"), "/boot/empty in the image is empty"),
        (ENTRY.replace("vmlinux", "huge"), "/boot/huge in the image is too large"),
        (ENTRY.replace("vmlinux", "link"), "no /boot/link in the file system"),
    ],
)
def test_entry_without_a_usable_kernel_is_an_error(
    tmp_path: Path, paths: Paths, entry: str, text: str
) -> None:
    folder = tree(tmp_path / "a", entry)
    (folder / "boot/empty").touch()
    (folder / "boot/link").symlink_to("/etc/passwd")
    with (folder / "boot/huge").open("wb") as stream:
        stream.truncate(257 * 2**20)
    with pytest.raises(MachineError, match=text):
        direct_boot.extract(image(folder), paths)
    assert not paths.boot.exists()


def test_linked_boot_entry_is_not_followed(tmp_path: Path, paths: Paths) -> None:
    """The link would lead to a file of this host."""
    secret = tmp_path / "secret.conf"
    secret.write_text(ENTRY)
    folder = tree(tmp_path / "a", None)
    (folder / "boot/loader/entries/a.conf").symlink_to(secret)
    assert direct_boot.extract(image(folder), paths) is None


@pytest.mark.parametrize(
    "options",
    [
        ("-b", "1024"),
        ("-b", "4096"),
        ("-O", "64bit"),
        ("-O", "^64bit"),
        ("-I", "128"),
        ("-O", "metadata_csum"),
    ],
)
def test_long_files_and_directories_are_read_completely(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A long file with holes, whose name is the last of a thousand."""
    folder = tmp_path / "a"
    (folder / "many").mkdir(parents=True)
    for number in range(1000):
        (folder / f"many/{number:04}-{'x' * 100}").touch()
    last = folder / f"many/0999-{'x' * 100}"
    with last.open("wb") as stream:
        for megabyte in range(0, 24, 2):
            stream.seek(megabyte * 2**20)
            stream.write(os.urandom(2**20 - 7))
        stream.truncate(25 * 2**20 + 3)
    disk_image = image(folder, *options, size="64M")
    for disk, fmt in ((disk_image, "qcow2"), (disk_image.with_suffix(".raw"), "raw")):
        with nbd.open_image(disk, fmt) as read:
            system = ext4.open_disk(read)
            assert system is not None
            inode = system.file(f"/many/{last.name}")
            assert b"".join(system.content(inode)) == last.read_bytes()
            assert system.find("/many/none") is system.find("/none/many") is None


@pytest.mark.parametrize("seed", range(60))
def test_damaged_file_system_raises_machine_error_only(tmp_path: Path, paths: Paths, seed: int) -> None:
    """Random bytes of superblock, descriptors, inodes and extents are changed."""
    chance = random.Random(seed)
    raw = tmp_path / "a.raw"
    image(tree(tmp_path / "a"), "-b", "1024")
    data = bytearray(raw.read_bytes())
    used = [at for at in range(1024, len(data)) if data[at]]
    for at in chance.sample(used, min(len(used), 40)):
        data[at] = chance.choice([0, 1, 0x7F, 0xFF, data[at] ^ (1 << chance.randrange(8))])
    raw.write_bytes(data)
    try:
        direct_boot.extract(raw, paths)
    except MachineError as error:
        assert str(error)


def test_endless_extent_tree_is_refused(tmp_path: Path) -> None:
    """Each node of the tree has a block full of children, all of which are the node itself."""
    block = 4096
    disk = bytearray(64 * block)
    node = struct.pack("<HHHHI", ext4.EXTENT_MAGIC, 340, 340, 5, 0)
    node += struct.pack("<IIHH", 0, 9, 0, 0) * 340
    disk[9 * block : 9 * block + len(node)] = node

    def read(offset: int, length: int) -> bytes:
        return bytes(disk[offset : offset + length]).ljust(length, b"\0")

    system = ext4.FileSystem(read, block, 10, 10, 128, block, 32)
    root = struct.pack("<HHHHI", ext4.EXTENT_MAGIC, 1, 4, 5, 0) + struct.pack("<IIHH", 0, 9, 0, 0)
    with pytest.raises(MachineError, match="damaged"):
        list(system.content(ext4.Inode(0o100644, 2**20, root.ljust(60, b"\0"))))


def test_unreadable_image_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.qcow2").write_bytes(b"no image")
    with (
        pytest.raises(MachineError, match=r"the image cannot be read: .*not in qcow2 format"),
        nbd.open_image(tmp_path / "no.qcow2", "qcow2") as read,
    ):
        read(0, 1)
