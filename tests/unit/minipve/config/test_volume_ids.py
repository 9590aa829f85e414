"""Volume IDs and sizes."""

from __future__ import annotations

import pytest
from minipve.base.errors import ApiError
from minipve.config import drives


@pytest.mark.parametrize(
    ("volid", "content", "vmid", "base"),
    [
        ("local:100/vm-100-disk-0.qcow2", "images", 100, None),
        ("local:100/base-100-disk-0.qcow2", "images", 100, None),
        (
            "local:100/base-100-disk-0.qcow2/101/vm-101-disk-0.qcow2",
            "images",
            101,
            "local:100/base-100-disk-0.qcow2",
        ),
        ("local:import/debian.qcow2", "import", None, None),
        ("local:iso/x.iso", "iso", None, None),
    ],
)
def test_volume_id_is_parsed(volid: str, content: str, vmid: int | None, base: str | None) -> None:
    volume = drives.parse_volume_id(volid)
    assert (volume.content, volume.vmid, volume.base) == (content, vmid, base)


@pytest.mark.parametrize(
    "volid",
    [
        "local",
        "other:100/vm-100-disk-0.qcow2",
        "local:../x",
        "local:import/..",
        "local:import/a/b",
        "local:100/../../x.raw",
    ],
)
def test_invalid_volume_id_is_refused(volid: str) -> None:
    with pytest.raises(ApiError):
        drives.parse_volume_id(volid)


@pytest.mark.parametrize(("text", "size"), [("96M", 96 * 2**20), ("1G", 2**30), ("1.5K", 1536), ("7", 7)])
def test_size_is_parsed(text: str, size: int) -> None:
    assert drives.size_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "text"), [(100663296, "96M"), (2**30, "1G"), (1536 * 2**20, "1536M"), (1000, "1000")]
)
def test_size_is_formatted(size: int, text: str) -> None:
    assert drives.size_text(size) == text
    assert drives.size_bytes(text) == size
