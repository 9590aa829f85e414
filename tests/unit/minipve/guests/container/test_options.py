"""The root file system option of a container."""

from __future__ import annotations

import pytest
from minipve.base.errors import ApiError
from minipve.guests.container import options


@pytest.mark.parametrize(
    ("rootfs", "text"),
    [
        ("nosuch:1", "storage 'nosuch' does not exist"),
        ("local:1G", "unable to parse directory volume name '1G'"),
        ("/mnt/x", "Permission check failed (mount point type bind is only allowed for root@pam)"),
        ("1", "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651."),
    ],
)
def test_impossible_root_file_system_is_refused(rootfs: str, text: str) -> None:
    with pytest.raises(ApiError) as refused:
        options.new_rootfs_bytes(rootfs)
    assert refused.value.reason == text


def test_size_of_the_root_file_system() -> None:
    assert options.new_rootfs_bytes("local:4") == 4 * 2**30
    assert options.rootfs_text("local:100/vm-100-disk-0.raw", 2**30) == "local:100/vm-100-disk-0.raw,size=1G"
    assert options.rootfs_bytes({"rootfs": "local:100/vm-100-disk-0.raw,size=1536M"}) == 1536 * 2**20
