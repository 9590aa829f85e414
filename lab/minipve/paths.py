"""Where an instance of minipve keeps its files: one frozen value that every module receives."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_state_path

INSTANCE = "default"


@dataclass(frozen=True)
class Paths:
    """``state`` belongs to one instance; ``cache`` (images, wheels) is shared by a user's instances.

    ``requirements`` is a pip requirements file: the guests' image carries these packages. None: plain Debian.
    """

    state: Path
    cache: Path
    requirements: Path | None = None

    @classmethod
    def of(cls, instance: str = INSTANCE) -> Paths:
        """``$MINIPVE_STATE`` and ``$MINIPVE_CACHE``, else folders below the XDG state and cache folders.

        ``$MINIPVE_REQUIREMENTS`` names the requirements file.
        """
        names = ("MINIPVE_STATE", "MINIPVE_CACHE", "MINIPVE_REQUIREMENTS")
        state, cache, packages = map(os.environ.get, names)
        return cls(
            state=Path(state).absolute() if state else user_state_path("minipve") / instance,
            cache=Path(cache).absolute() if cache else user_cache_path("minipve"),
            requirements=Path(packages).absolute() if packages else None,
        )

    def of_node(self, name: str) -> Paths:
        """Those of a further node of the same cluster."""
        return Paths(self.state / "nodes" / name, self.cache, self.requirements)

    @property
    def further(self) -> list[str]:
        """The names of the further nodes of the cluster, in their order."""
        folder = self.state / "nodes"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    @property
    def down(self) -> Path:
        """There while a further node is switched off."""
        return self.state / "down"

    @property
    def run(self) -> Path:
        """Pid files and sockets of running machines and of the namespace; gone with the last process."""
        return self.state / "run"

    @property
    def log(self) -> Path:
        """One log for each machine's QEMU, one for each machine's serial console."""
        return self.state / "log"

    @property
    def seeds(self) -> Path:
        """NoCloud seed images, one a machine."""
        return self.state / "seeds"

    @property
    def containers(self) -> Path:
        """What each container has changed of its template's tree, by VMID; others' user ids own it."""
        return self.state / "containers"

    @property
    def templates(self) -> Path:
        """Container templates unpacked, by the digest of their archive."""
        return self.state / "templates"

    @property
    def boot(self) -> Path:
        """Kernels taken out of disk images, by the digest of what is kept."""
        return self.cache / "boot"

    @property
    def interfaces(self) -> Path:
        """The node's network configuration, in ifupdown2's syntax."""
        return self.state / "etc" / "network" / "interfaces"

    @property
    def enter_shell(self) -> Path:
        """A ``/bin/sh`` inside the instance's network namespace."""
        return self.state / "enter-shell"

    @property
    def connect(self) -> Path:
        """``connect HOST PORT``: an ssh ProxyCommand into the namespace."""
        return self.state / "connect"

    @property
    def images(self) -> Path:
        """Golden images, by recipe hash."""
        return self.cache / "images"

    @property
    def wheels(self) -> Path:
        """Wheelhouses, by the hash of their requirements."""
        return self.cache / "wheels"

    def runtime(self, vmid: int, kind: str) -> Path:
        """The run-time file ``<vmid>.<kind>`` of a machine: pid, qmp, qga, serial0, rates."""
        return self.run / f"{vmid}.{kind}"
