"""Machines of two labs on one endpoint: each boots the kernel of its own image."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract import hostile_peers
from tests.contract.endpoint import Endpoint


@pytest.mark.skipif(
    shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="mke2fs is not installed"
)
def test_images_that_share_a_uuid_boot_their_own_kernels(own: Endpoint, tmp_path: Path) -> None:
    assert hostile_peers.start_twins(own, hostile_peers.twin_images(tmp_path)) == []
