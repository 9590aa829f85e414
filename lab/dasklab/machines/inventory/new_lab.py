"""Create the folder of a new lab: an inventory and an ``ansible.cfg``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dasklab import atomic
from dasklab.errors import LabError
from dasklab.paths import INVENTORIES, SHARE

EXAMPLES: Mapping[str, Path] = {
    "machines": INVENTORIES,
    "containers": INVENTORIES,
    "proxmox": INVENTORIES / "examples" / "proxmox",
    "existing": INVENTORIES / "examples" / "existing",
}
"""Kind of lab -> the folder of the inventory that is copied."""

_FOLDERS = ("roles_path", "playbook_dir", "filter_plugins", "callback_plugins", "strategy_plugins")
_RELATIVE = re.compile(rf"^({'|'.join(_FOLDERS)}) = (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class WorkerSize:
    """How many workers a lab has, and the size of each."""

    workers: int
    threads: int
    cores: int
    memory_mb: int


def create(
    folder: Path, kind: str, size: WorkerSize | None = None, files: Mapping[str, str] | None = None
) -> Path:
    """Write the files of a new lab into a folder, and return its inventory.

    Args:
        folder: a new or empty folder. Its name becomes the lab's name, so that two labs on a machine differ.
        kind: one of ``EXAMPLES``.
        size: of the workers of a lab on this machine, if it is not the example's.
        files: further files of the folder, by name.

    Raises:
        LabError: the folder is not empty, or its name cannot be a lab's name.
    """
    if folder.exists() and any(folder.iterdir()):
        raise LabError(f"{folder} is not empty", "choose a new folder: dasklab init mylab")
    name = folder.resolve().name
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        allowed = "a lower-case letter, then up to 30 lower-case letters, digits and hyphens"
        raise LabError(f"{name!r} cannot be a lab's name; allowed: {allowed}", "choose another folder")
    source = EXAMPLES[kind]
    with atomic.filled(folder) as draft:
        inventory = draft / "inventory"
        inventory.mkdir()
        shutil.copy(source / "hosts.yml", inventory)
        if (source / "group_vars").is_dir():
            shutil.copytree(source / "group_vars", inventory / "group_vars")
        for file in inventory.rglob("*.yml"):
            file.write_text(_adapt(file.read_text(encoding="utf-8"), name, kind), encoding="utf-8")
            if size:
                file.write_text(_with_size(file.read_text(encoding="utf-8"), size), encoding="utf-8")
        settings = (SHARE / "ansible.cfg").read_text(encoding="utf-8")
        (draft / "ansible.cfg").write_text(_RELATIVE.sub(rf"\1 = {SHARE}/\2", settings), encoding="utf-8")
        for file_name, content in (files or {}).items():
            (draft / file_name).write_text(content, encoding="utf-8")
    return folder / "inventory" / "hosts.yml"


def _adapt(text: str, name: str, kind: str) -> str:
    """Put the lab's name into an example's text and, for containers, the kind of guest. Pure."""
    text = re.sub(r"^( *lab_name:) *\S+", rf"\1 {name}", text, flags=re.MULTILINE)
    if kind == "containers":
        text = re.sub(r"^lab_guests: >-\n(?: +.*\n)+", "lab_guests: container\n", text, flags=re.MULTILINE)
    return text


def _with_size(text: str, size: WorkerSize) -> str:
    """Put the number and the size of the workers into a file of an example's inventory. Pure."""
    text = re.sub(
        r"^dask_worker_threads: \d+", f"dask_worker_threads: {size.threads}", text, flags=re.MULTILINE
    )
    before, group, workers = text.partition("        dask_workers:\n")
    workers = re.sub(r"worker-\[1:\d+\]", f"worker-[1:{size.workers}]", workers)
    workers = re.sub(r"vm_cores: \d+", f"vm_cores: {size.cores}", workers)
    return before + group + re.sub(r"vm_memory_mb: \d+", f"vm_memory_mb: {size.memory_mb}", workers)
