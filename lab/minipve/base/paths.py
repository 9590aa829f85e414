"""The folders and files of an instance."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_state_path

INSTANCE = "default"


@dataclass(frozen=True)
class Paths:
    """The paths of an instance.

    Attributes:
        state: belongs to this instance.
        cache: images and wheels, shared by all instances of a user.
        requirements: a pip requirements file with the packages of the guests' image; None: plain Debian.
    """

    state: Path
    cache: Path
    requirements: Path | None = None

    @classmethod
    def of(cls, instance: str = INSTANCE) -> Paths:
        """Return the paths that the environment sets, else those below the XDG state and cache folders.

        The variables are ``MINIPVE_STATE``, ``MINIPVE_CACHE`` and ``MINIPVE_REQUIREMENTS``.
        """
        names = ("MINIPVE_STATE", "MINIPVE_CACHE", "MINIPVE_REQUIREMENTS")
        state, cache, packages = map(os.environ.get, names)
        return cls(
            state=Path(state).absolute() if state else user_state_path("minipve") / instance,
            cache=Path(cache).absolute() if cache else user_cache_path("minipve"),
            requirements=Path(packages).absolute() if packages else None,
        )

    def of_node(self, name: str) -> Paths:
        """Return the paths of an additional node of the cluster."""
        return Paths(self.state / "nodes" / name, self.cache, self.requirements)

    @property
    def additional_nodes(self) -> list[str]:
        """The names of the additional nodes of the cluster, in order."""
        folder = self.state / "nodes"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    @property
    def down(self) -> Path:
        """A file that exists while an additional node is off."""
        return self.state / "down"

    @property
    def run(self) -> Path:
        """Pid files and sockets of running guests and of the namespace. Removed with the last process."""
        return self.state / "run"

    @property
    def log(self) -> Path:
        """Logs of the endpoint and its tasks, and of each machine's QEMU and serial console."""
        return self.state / "log"

    @property
    def endpoint_lock(self) -> Path:
        """A file that a running endpoint keeps locked. It contains the process id."""
        return self.run / "endpoint.lock"

    @property
    def endpoint_log(self) -> Path:
        return self.log / "endpoint.log"

    @property
    def endpoint_file(self) -> Path:
        """How to reach the instance (mode 0600)."""
        return self.state / "endpoint.json"

    @property
    def seeds(self) -> Path:
        """NoCloud seed images, one per machine."""
        return self.state / "seeds"

    @property
    def containers(self) -> Path:
        """The changes of each container to its template's tree, by VMID. Mapped user ids own these files."""
        return self.state / "containers"

    @property
    def templates(self) -> Path:
        """Unpacked container templates, by the digest of their archive."""
        return self.state / "templates"

    @property
    def interfaces(self) -> Path:
        """The node's network configuration, in ifupdown2's syntax."""
        return self.state / "etc" / "network" / "interfaces"

    @property
    def root_password(self) -> Path:
        """The password of root@pam (mode 0600)."""
        return self.state / "root-password"

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
        """Guest images with their kernels, by the hash of their recipe."""
        return self.cache / "images"

    @property
    def wheels(self) -> Path:
        """Python wheels, by the hash of their requirements."""
        return self.cache / "wheels"

    def runtime(self, vmid: int, kind: str) -> Path:
        """Return the run-time file ``<vmid>.<kind>`` of a machine: pid, qmp, qga, serial0, rates."""
        return self.run / f"{vmid}.{kind}"
