"""The golden image: its recipe, its build, copies of it, the container template."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from minipve.base.errors import UserError
from minipve.base.paths import Paths
from minipve.base.process import silent
from minipve.image import build_tools, debian, golden, outputs
from minipve.storage import qemu_img


def test_image_name_changes_with_the_requirements(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("dask==1\n")
    paths = Paths(tmp_path / "state", tmp_path / "cache", pins)
    first, packages = golden.image_path(paths), golden.wheels_directory(pins, paths.wheels)
    assert golden.image_path(paths) == first and golden.recipe_hash(pins)[:12] in first.name
    pins.write_text("dask==2\n")
    assert golden.image_path(paths) != first and golden.wheels_directory(pins, paths.wheels) != packages


def test_image_without_requirements_has_its_own_recipe(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("dask==1\n")
    plain = Paths(tmp_path / "state", tmp_path / "cache")
    assert golden.image_path(plain) != golden.image_path(Paths(plain.state, plain.cache, pins))
    assert golden.fetch_wheels(plain) is None


def test_missing_requirements_file_is_an_error(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"requirements file .*none\.txt does not exist"):
        golden.image_path(paths)


def test_existing_image_is_not_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    image = golden.image_path(paths)
    image.parent.mkdir(parents=True)
    image.touch()
    monkeypatch.setattr(golden, "_build", lambda *_: pytest.fail("the image was built"))
    assert golden.build(paths, silent) == image


def test_full_disk_is_an_error_before_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_tools, "SPACE_GIB", 10**9)
    monkeypatch.setattr(golden.process, "require_tools", lambda *_: None)
    with pytest.raises(UserError, match="GiB are free"):
        golden.build(Paths(tmp_path, tmp_path), silent)
    assert [file.name for file in Paths(tmp_path, tmp_path).images.iterdir()] == [".lock"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError("mmdebstrap failed")])
def test_interrupted_build_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(scratch: Path, *_: object) -> None:
        (scratch / "root").mkdir()
        raise error

    monkeypatch.setattr(golden, "fetch_wheels", lambda _paths: tmp_path)
    monkeypatch.setattr(debian, "make", fail)
    monkeypatch.setattr(golden.process, "require_tools", lambda *_: None)
    paths = Paths(tmp_path, tmp_path / "cache")
    with pytest.raises((KeyboardInterrupt, UserError)):
        golden.build(paths, silent)
    assert [file.name for file in paths.images.iterdir()] == [".lock"]


def test_export_writes_complete_files_only(tmp_path: Path) -> None:
    image = tmp_path / "dasklab-0123.qcow2"
    qemu_img.create(image, 2**20)
    folder = tmp_path / "stick"
    folder.mkdir()
    assert golden.export(image, folder) == folder / image.name
    assert golden.export(image, folder / "mine.qcow2") == folder / "mine.qcow2"
    assert qemu_img.info(folder / "mine.qcow2").virtual_bytes == 2**20
    with pytest.raises(UserError, match=r"other\.qcow2 was not written"):
        golden.export(tmp_path / "gone", folder / "other.qcow2")
    assert sorted(file.name for file in folder.iterdir()) == ["dasklab-0123.qcow2", "mine.qcow2"]


@pytest.mark.parametrize(
    ("target", "text"), [("image.img", "ends in .qcow2"), ("no/image.qcow2", "is not a directory")]
)
def test_export_refuses_an_unusable_name(target: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=text):
        golden.export(tmp_path / "image.qcow2", tmp_path / target)


def test_template_lacks_files_that_only_machines_need(tmp_path: Path) -> None:
    rootfs = tmp_path / "root"
    for name in ("boot/vmlinuz", "usr/lib/modules/6.1/a.ko", "dev/null", "etc/passwd", "opt/boot/kept"):
        (rootfs / name).parent.mkdir(parents=True, exist_ok=True)
        (rootfs / name).write_text(name)
    outputs.write_template(rootfs, tmp_path / "t.tar.zst")
    members = subprocess.run(
        ["tar", "-tf", tmp_path / "t.tar.zst"], capture_output=True, text=True
    ).stdout.split()
    files = sorted(name for name in members if not name.endswith("/"))
    assert files == ["./etc/passwd", "./opt/boot/kept"]
    assert {"./boot/", "./dev/", "./usr/lib/modules/"} <= set(members), "the folders stay"


def test_template_is_next_to_the_image(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    image, template = golden.image_path(paths), golden.template_path(paths)
    assert template.parent == image.parent and template.name == image.name.replace(".qcow2", ".tar.zst")


def test_exported_template_keeps_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").write_bytes(b"an archive")
    folder = tmp_path / "stick"
    folder.mkdir()
    assert golden.export(tmp_path / "a.tar.zst", folder).read_bytes() == b"an archive"
    with pytest.raises(UserError, match=r"ends in \.tar\.zst"):
        golden.export(tmp_path / "a.tar.zst", folder / "a.qcow2")
