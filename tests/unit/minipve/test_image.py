from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from minipve import process
from minipve.image import apt_sources, build_tools, container_template, debian, golden, qemu_img, wheels
from minipve.paths import Paths
from minipve.progress import Steps, silent, terminal
from minipve.user_error import UserError


def test_the_name_follows_the_recipe(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("dask==1\n")
    paths = Paths(tmp_path / "state", tmp_path / "cache", pins)
    first, packages = golden.image_path(paths), wheels.directory(pins, paths.wheels)
    assert golden.image_path(paths) == first and golden.recipe_hash(pins)[:12] in first.name
    pins.write_text("dask==2\n")
    assert golden.image_path(paths) != first and wheels.directory(pins, paths.wheels) != packages


def test_an_image_without_python_packages_has_a_recipe_of_its_own(tmp_path: Path) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("dask==1\n")
    plain = Paths(tmp_path / "state", tmp_path / "cache")
    assert golden.image_path(plain) != golden.image_path(Paths(plain.state, plain.cache, pins))
    assert wheels.fetch(plain) is None


def test_missing_requirements_are_named(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"requirements file .*none\.txt does not exist"):
        golden.image_path(paths)


def test_an_image_that_is_there_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    there = golden.image_path(paths)
    there.parent.mkdir(parents=True)
    there.touch()
    monkeypatch.setattr(golden, "_build", lambda *_: pytest.fail("it was built"))
    assert golden.build(paths, silent) == there


def test_a_missing_tool_is_one_line_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "which", lambda _tool: None)
    with pytest.raises(UserError) as refused:
        process.need("mke2fs", "mmdebstrap", "debugfs")
    assert refused.value.message == "not installed: mke2fs, mmdebstrap, debugfs"
    assert refused.value.hint == "apt install e2fsprogs mmdebstrap"


def test_a_full_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_tools, "SPACE_GIB", 10**9)
    monkeypatch.setattr(golden.process, "need", lambda *_: None)
    with pytest.raises(UserError, match="GiB are free"):
        golden.build(Paths(tmp_path, tmp_path), silent)
    assert [file.name for file in Paths(tmp_path, tmp_path).images.iterdir()] == [".lock"]


@pytest.mark.parametrize("accident", [KeyboardInterrupt, UserError("mmdebstrap failed")])
def test_nothing_is_left_of_a_build_that_did_not_end(
    accident: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(scratch: Path, *_: object) -> None:
        (scratch / "root").mkdir()
        raise accident

    monkeypatch.setattr(wheels, "fetch", lambda _paths: tmp_path)
    monkeypatch.setattr(debian, "make", fail)
    monkeypatch.setattr(golden.process, "need", lambda *_: None)
    paths = Paths(tmp_path, tmp_path / "cache")
    with pytest.raises((KeyboardInterrupt, UserError)):
        golden.build(paths, silent)
    assert [file.name for file in paths.images.iterdir()] == [".lock"]


def test_a_failing_command_tells_its_last_words(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo one; echo 'E: no such package'; echo three; exit 3"]
    with pytest.raises(UserError, match="sh failed: E: no such package") as refused:
        build_tools.run_logged(words, tmp_path / "log", silent)
    assert "three" in str(refused.value.hint)
    assert (tmp_path / "log").read_text().startswith("one\n")


def test_steps_add_up() -> None:
    told: list[tuple[str, float]] = []
    steps = Steps(one=1, two=3)
    with steps.run(lambda what, fraction, _left: told.append((what, fraction))) as step:
        with step("one", "first") as within:
            within("half", 0.5, None)
        with step("two", "second"):
            pass
    assert told[:3] == [("first", 0.0), ("first", 0.125), ("second", 0.25)]
    assert told[-1][1] == 1.0


@pytest.mark.parametrize(("done", "elapsed", "left"), [(0, 0, 4), (2, 2, 2), (2, 6, 6), (0.1, 3, 3.9)])
def test_time_left_grows_on_a_slower_machine(done: float, elapsed: float, left: float) -> None:
    assert Steps(one=1, two=3).left_s(done, elapsed) == pytest.approx(left)


def test_elsewhere_than_on_a_terminal_each_step_is_one_line() -> None:
    stream = io.StringIO()
    show = terminal(stream)
    for fraction in (0.1, 0.2, 0.3):
        show("installing Debian", fraction, 9.0)
    assert stream.getvalue() == "golden image: installing Debian\n"


DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://other.example
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://off.example
Suites: bookworm
Components: main
"""


def test_sources_in_deb822() -> None:
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    lines = apt_sources.one_line_style(DEB822)
    assert lines[0] == f"deb {key} http://mirror.example/debian bookworm main"
    assert [line for line in lines if apt_sources.is_debian(line, "bookworm")] == [
        f"deb {key} http://mirror.example/debian {suite} main" for suite in ("bookworm", "bookworm-updates")
    ]


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("deb http://m.example/debian bookworm main contrib", True),
        ("deb [arch=amd64 signed-by=/k] http://m.example/debian-security bookworm-security main", True),
        ("deb-src http://m.example/debian bookworm main", False),
        ("deb http://m.example/docker bookworm stable", False),
        ("deb http://m.example/ubuntu noble main", False),
        ("# deb http://m.example/debian bookworm main", False),
        ("deb http://m.example/flat ./", False),
        ("", False),
    ],
)
def test_which_lines_are_debians(line: str, ours: bool) -> None:
    assert apt_sources.is_debian(line, "bookworm") is ours


def test_proxies_are_passed_on() -> None:
    kept = ['Acquire::http::Proxy "http://p:3128"', 'Acquire::Check-Date "false"']
    dump = ['Acquire ""', kept[0], 'Acquire::Languages ""', kept[1]]
    assert apt_sources.parse_options("".join(f"{line};\n" for line in dump)) == kept


def test_a_copy_for_elsewhere_appears_whole_or_not_at_all(tmp_path: Path) -> None:
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
    ("target", "why"), [("image.img", "ends in .qcow2"), ("no/image.qcow2", "is not a directory")]
)
def test_a_copy_that_no_node_would_take_is_refused(target: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=why):
        golden.export(tmp_path / "image.qcow2", tmp_path / target)


def test_the_template_is_the_tree_without_what_only_a_machine_needs(tmp_path: Path) -> None:
    tree = tmp_path / "root"
    for name in ("boot/vmlinuz", "usr/lib/modules/6.1/a.ko", "dev/null", "etc/passwd", "opt/boot/kept"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    container_template.write(tree, tmp_path / "t.tar.zst")
    listed = subprocess.run(
        ["tar", "-tf", tmp_path / "t.tar.zst"], capture_output=True, text=True
    ).stdout.split()
    files = sorted(name for name in listed if not name.endswith("/"))
    assert files == ["./etc/passwd", "./opt/boot/kept"]
    assert {"./boot/", "./dev/", "./usr/lib/modules/"} <= set(listed), "the folders are there"


def test_the_template_lies_beside_the_image(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    image, beside = golden.image_path(paths), golden.template_path(paths)
    assert beside.parent == image.parent and beside.name == image.name.replace(".qcow2", ".tar.zst")


def test_a_copy_of_the_template_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").write_bytes(b"an archive")
    folder = tmp_path / "stick"
    folder.mkdir()
    assert golden.export(tmp_path / "a.tar.zst", folder).read_bytes() == b"an archive"
    with pytest.raises(UserError, match=r"ends in \.tar\.zst"):
        golden.export(tmp_path / "a.tar.zst", folder / "a.qcow2")
