"""Names of uploads, and the lists, which read qcow2 headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from minipve.base.atomic import sweep
from minipve.base.errors import ApiError
from minipve.storage import directory
from minipve.storage.directory import Storage


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    local = Storage(tmp_path)
    local.create_directories()
    return local


@pytest.mark.parametrize(
    ("content", "name", "normalised"),
    [
        ("import", "my image.qcow2", "my_image.qcow2"),
        ("iso", "../../x.iso", "x.iso"),
        ("import", "ä.raw", "_.raw"),
    ],
)
def test_upload_name_is_normalised(content: str, name: str, normalised: str) -> None:
    assert directory.upload_name(content, name) == normalised


@pytest.mark.parametrize(("content", "name"), [("import", "x.img"), ("iso", "x"), ("import", ".qcow2")])
def test_upload_with_a_wrong_extension_is_refused(content: str, name: str) -> None:
    with pytest.raises(ApiError) as refused:
        directory.upload_name(content, name)
    text = {"import": "invalid filename or wrong extension"}.get(content, "wrong file extension")
    assert refused.value.errors == {"filename": text}


def _qcow2(file: Path, *more: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *more, str(file)], check=True)


def test_base_image_is_protected_while_clones_exist(local: Storage) -> None:
    base = local.path("local:100/base-100-disk-0.qcow2")
    _qcow2(base, "-o", "size=64M")
    clone = local.path("local:101/vm-101-disk-0.qcow2")
    _qcow2(clone, "-F", "qcow2", "-b", "../100/base-100-disk-0.qcow2")
    (clone.parent / "vm-101-disk-1.qcow2").touch()
    rows = local.images(None)
    linked = "local:100/base-100-disk-0.qcow2/101/vm-101-disk-0.qcow2"
    assert [row["volid"] for row in rows] == ["local:100/base-100-disk-0.qcow2", linked]
    assert {row["size"] for row in rows} == {64 * 2**20}
    assert local.users_of("local:100/base-100-disk-0.qcow2") == [linked]
    assert local.free_name(101) == "local:101/vm-101-disk-2.qcow2"
    assert local.free_name(100) == "local:100/vm-100-disk-1.qcow2"
    with pytest.raises(ApiError, match="still in use by linked cloned"):
        local.remove("local:100/base-100-disk-0.qcow2")
    for volid in local.of_vm(101):
        local.remove(volid)
    assert not clone.parent.exists()
    local.remove("local:100/base-100-disk-0.qcow2")
    assert local.content(None, None) == []


def test_unfinished_upload_is_swept(local: Storage) -> None:
    upload = local.upload_path("/var/tmp/pveupload-00ff")
    upload.write_bytes(b"half")
    sweep(local.root)
    assert not upload.exists()
    assert local.upload_path("/var/tmp/../../etc/pveupload-1").parent == local.root


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    """An endpoint may be killed after it created a volume's folder and before it created the volume."""
    local = Storage(tmp_path)
    for vmid in (300, 301):
        (tmp_path / "images" / str(vmid)).mkdir(parents=True)
    (tmp_path / "images/301/vm-301-disk-0.raw").touch()
    for vmid in (300, 301, 302):
        local.remove_empty_folder(vmid)
    assert [file.name for file in (tmp_path / "images").iterdir()] == ["301"]
