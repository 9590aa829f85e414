from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.minipve.image import disks
from lab.minipve.paths import Paths
from lab.minipve.process import MachineError

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-img") is None or shutil.which("debugfs", path="/usr/sbin:/sbin:/usr/bin") is None,
    reason="qemu-img and debugfs are needed",
)
ENTRY = "title A system\nversion 6\nlinux /boot/vmlinux\ninitrd /boot/initrd\noptions quiet console=ttyS0\n"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "state", tmp_path / "cache")


def system(tmp_path: Path, entry: str | None) -> Path:
    """A whole-disk ext4 image, as qcow2."""
    tree = tmp_path / "tree"
    (tree / "boot/loader/entries").mkdir(parents=True)
    (tree / "boot/vmlinux").write_bytes(b"\x7fELF the kernel")
    (tree / "boot/initrd").write_bytes(b"070701 the initramfs")
    if entry:
        (tree / "boot/loader/entries/one.conf").write_text(entry)
    raw, image = tmp_path / "disk.raw", tmp_path / "disk.qcow2"
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", tree, raw, "8M"], check=True, env={"PATH": path})
    disks.import_image(raw, image)
    return image


def test_the_kernel_comes_out_of_a_clone_as_out_of_its_base(tmp_path: Path, paths: Paths) -> None:
    base, clone = system(tmp_path, ENTRY), tmp_path / "9101" / "clone.qcow2"
    disks.linked_clone(base, clone)
    for image in (base, clone):
        boot = disks.extract_boot(image, paths)
        assert boot is not None and boot.cmdline == "quiet console=ttyS0"
        assert boot.kernel.read_bytes() == b"\x7fELF the kernel"
        assert boot.initrd.read_bytes() == b"070701 the initramfs"
    assert len(list(paths.boot.iterdir())) == 1


def test_a_disk_with_its_own_boot_loader_is_left_to_it(tmp_path: Path, paths: Paths) -> None:
    disks.create(tmp_path / "empty.qcow2", 2**20)
    assert disks.extract_boot(tmp_path / "empty.qcow2", paths) is None
    assert disks.extract_boot(system(tmp_path, None), paths) is None


def test_an_entry_that_names_a_missing_kernel_is_an_error(tmp_path: Path, paths: Paths) -> None:
    image = system(tmp_path, ENTRY.replace("vmlinux", "nothing"))
    with pytest.raises(MachineError, match="no /boot/nothing in the file system"):
        disks.extract_boot(image, paths)
    assert list(paths.boot.iterdir()) == []


def test_a_boot_entry_that_is_a_link_is_not_followed(tmp_path: Path, paths: Paths) -> None:
    """Neither to a file of this machine, nor is anything of the guest's tree laid down here."""
    secret = tmp_path / "secret.conf"
    secret.write_text(ENTRY)
    (tmp_path / "tree/boot/loader/entries").mkdir(parents=True)
    (tmp_path / "tree/boot/loader/entries/a.conf").symlink_to(secret)
    raw, image = tmp_path / "disk.raw", tmp_path / "disk.qcow2"
    path = "/usr/sbin:/sbin:/usr/bin:/bin"
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", tmp_path / "tree", raw, "8M"], check=True, env={"PATH": path}
    )
    disks.import_image(raw, image)
    assert disks.extract_boot(image, paths) is None


def test_a_kernel_s_strange_name_reaches_no_program(tmp_path: Path, paths: Paths) -> None:
    image = system(tmp_path, ENTRY.replace("/boot/vmlinux", "/boot/vmlinux /etc/cron.d/evil"))
    with pytest.raises(MachineError, match="strange name"):
        disks.extract_boot(image, paths)


def test_sizes_and_backing(tmp_path: Path) -> None:
    base, clone = tmp_path / "100" / "base.qcow2", tmp_path / "101" / "disk.qcow2"
    disks.create(base, 2**20)
    disks.linked_clone(base, clone)
    disks.resize(clone, 2**21)
    assert disks.info(clone).virtual_bytes == 2**21
    assert disks.info(clone).backing == base
    with pytest.raises(MachineError, match="shrinking disks is not supported"):
        disks.resize(clone, 2**20)
    with pytest.raises(MachineError, match="already exists"):
        disks.create(clone, 2**20)


def test_a_full_clone_stands_alone(tmp_path: Path) -> None:
    disks.create(tmp_path / "a.qcow2", 2**20)
    disks.full_clone(tmp_path / "a.qcow2", tmp_path / "b.qcow2")
    assert disks.info(tmp_path / "b.qcow2").backing is None


def test_no_uuid_where_there_is_no_ext4() -> None:
    assert disks.ext4_uuid(bytes(disks.SUPERBLOCK_BYTES)) is None
    start = bytearray(disks.SUPERBLOCK_BYTES)
    start[1080:1082] = b"\x53\xef"
    start[1128:1144] = bytes(range(16))
    assert disks.ext4_uuid(bytes(start)) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
