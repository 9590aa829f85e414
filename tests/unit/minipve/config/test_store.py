"""VM files: round trip, pending section, digest, locks between threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minipve.base.atomic import write_atomic
from minipve.base.errors import ApiError
from minipve.config.store import GuestConfig, GuestStore, typed

from tests.waiting import PATIENCE_S

FULL = """#two lines%3A 50 %25
#and another
cores: 2
net0: virtio=02:00:00:00:00:01,bridge=vmbr0

[PENDING]
delete: net1 onboot
description: new%0Atext
memory: 1024
"""


@pytest.fixture
def store(tmp_path: Path) -> GuestStore:
    return GuestStore({"pve": tmp_path}, tmp_path / "lock", "pve")


def test_text_matches_pve_s_format() -> None:
    config = GuestConfig.parse(FULL)
    assert config.options["description"] == "two lines: 50 %\nand another"
    assert config.pending == {"memory": "1024", "description": "new\ntext"}
    assert config.deleted == ["net1", "onboot"]
    assert config.text() == FULL


keys = st.from_regex(r"[a-z]{1,8}[0-9]{0,2}", fullmatch=True).filter(
    lambda k: k not in ("delete", "description")
)
values = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
notes = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=30)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(keys, values, max_size=5), st.dictionaries(keys, values, max_size=3), notes)
def test_writing_and_reading_are_inverse(options: dict[str, str], pending: dict[str, str], note: str) -> None:
    config = GuestConfig(options | {"description": note}, pending, ["a1", "b2"])
    assert GuestConfig.parse(config.text()) == config


@pytest.mark.parametrize("mark", [*"\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\x1b"])
@pytest.mark.parametrize("section", ["options", "pending"])
def test_values_with_line_breaks_are_refused(store: GuestStore, mark: str, section: str) -> None:
    """As PVE does for a line feed. Nothing is written."""
    store.save(100, GuestConfig({"name": "a"}))
    evil = {"ciuser": f"a{mark}scsi1: local:7300/vm-7300-disk-0.qcow2"}
    config = GuestConfig(evil) if section == "options" else GuestConfig({}, evil)
    with pytest.raises(ApiError, match="unable to parse value of 'ciuser' - property contains a line feed"):
        store.save(100, config)
    assert store.load(100) == GuestConfig({"name": "a"})


@pytest.mark.parametrize("mark", [*"\n\r\x0b\x1c\x85\u2028%:#["])
def test_description_may_contain_anything(mark: str) -> None:
    text = f"a{mark}scsi1: x{mark}[PENDING]{mark}memory: 1"
    config = GuestConfig({"description": text, "name": "n"}, {"description": text})
    assert GuestConfig.parse(config.text()) == config
    assert len(config.text().splitlines()) == len(config.text().split("\n")) - 1


def test_merged_and_digest() -> None:
    config = GuestConfig({"cores": "1", "onboot": "1"}, {"cores": "2", "memory": "64"}, ["onboot"])
    assert config.merged() == {"cores": "2", "memory": "64"}
    digest = config.digest
    config.check_digest(digest)
    config.check_digest(None)
    config.options["cores"] = "4"
    with pytest.raises(ApiError, match="checksum mismatch"):
        config.check_digest(digest)


def test_values_have_the_types_of_the_schema() -> None:
    assert (typed("cores", "2"), typed("kvm", "0"), typed("memory", "512")) == (2, 0, "512")
    assert typed("meta", "x") == "x"


def test_create_load_remove(store: GuestStore) -> None:
    store.create(100, "create")
    with pytest.raises(ApiError, match="VM 100 already exists on node 'pve'"):
        store.create(100, "create")
    with pytest.raises(ApiError, match=r"VM is locked \(create\)"):
        store.load(100).check_lock()
    assert store.vmids() == [100]
    store.remove(100)
    with pytest.raises(ApiError, match=r"Configuration file 'nodes/pve/qemu-server/100.conf' does not exist"):
        store.load(100)
    assert dict(store.all()) == {}


def test_failed_block_saves_nothing(store: GuestStore) -> None:
    store.create(100, "create")
    with pytest.raises(ZeroDivisionError), store.changing(100) as config:
        config.options["cores"] = "7"
        raise ZeroDivisionError
    assert "cores" not in store.load(100).options


def test_file_lock_times_out(store: GuestStore) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked(100):
            held.set()
            release.wait(PATIENCE_S)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(PATIENCE_S)
    text = r"can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"
    with pytest.raises(ApiError, match=text), store.locked(100, 0.05):
        raise AssertionError
    release.set()
    holder.join()
    readers = store.locked(100, 0.05, shared=True), store.locked(100, 0.05, shared=True)
    with (
        readers[0],
        readers[1],
        store.locked(101),
        pytest.raises(ApiError, match=text),
        store.locked(100, 0.05),
    ):
        raise AssertionError
    with pytest.raises(TimeoutError, match="mine"), store.locked(100):
        raise TimeoutError("mine")


def test_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.conf"
    write_atomic(file, "old", 0o600)

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomic(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
