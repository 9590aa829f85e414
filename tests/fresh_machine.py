"""A fresh Debian machine in namespaces of its own, with Python, apt, and this host's mirror and certificates.

Its processes share this host's kernel, and its network where they have to download. They end with the script.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from minipve.image import debian

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
MISSING = [name for name in ("mmdebstrap", "unshare", "pivot_root") if not shutil.which(name, path=PATH)]
MOUNT = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
mount -t tmpfs tmpfs "$1/run"
mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
if [ "$2" = alone ]; then ip link set lo up; fi
cd "$1"
shift 2
pivot_root . mnt
/mnt/bin/umount -l /mnt
exec "$@"
"""


@dataclass(frozen=True)
class FreshMachine:
    """A root file system, and what runs in it as root.

    Attributes:
        root: the root file system.
        user: name of the home folder. No other machine has it: control groups, which all machines of a kernel
            share, are named after the folders of who made them.
    """

    root: Path
    user: str = field(default_factory=lambda: f"user-{secrets.token_hex(4)}")

    @classmethod
    def make(cls, root: Path, release: str = "bookworm") -> FreshMachine:
        """Install the system: what every Debian has, Python and certificates."""
        words = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,ca-certificates"]
        words += [f"--aptopt={option}" for option in debian.options()]
        subprocess.run([*words, release, str(root), *debian.host_mirrors(release)], check=True)
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        (root / "etc" / "hosts").write_text("127.0.0.1 localhost fresh scheduler\n")
        (root / "etc" / "resolv.conf").unlink(missing_ok=True)
        (root / "etc" / "resolv.conf").touch()
        machine = cls(root)
        machine.home.mkdir()
        return machine

    @property
    def home(self) -> Path:
        return self.root / "home" / self.user

    def start(self, script: str, folder: str, online: bool = False) -> subprocess.Popen[str]:
        """Start a script of Bash in a folder of the user's home; both streams are in ``stdout``.

        Args:
            script: it ends at the first command that fails.
            folder: where it runs.
            online: with this host's network, instead of one with nothing but a loopback interface.
        """
        alone = [] if online else ["--net"]
        namespaces = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            *alone,
        ]
        mounted = ["sh", "-c", MOUNT, "sh", str(self.root), "online" if online else "alone"]
        variables = {
            "HOME": f"/home/{self.user}",
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "SHELL": "/bin/bash",
        }
        variables |= {name: os.environ[name] for name in PROXIES if name in os.environ}
        return subprocess.Popen(
            [*namespaces, *mounted, "bash", "-e", "-c", f"cd ~/{folder}\n{script}"],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, folder: str, online: bool = False, timeout_s: float = 600) -> str:
        """Run a script, see `start`, and return what it prints.

        Raises:
            AssertionError: a command of it failed.
        """
        with self.start(script, folder, online) as process:
            try:
                printed, _ = process.communicate(timeout=timeout_s)
            finally:
                process.kill()
        assert process.returncode == 0, f"{script}\nended with {process.returncode}:\n{printed[-6000:]}"
        return printed

    def remove(self) -> None:
        """Delete the root file system, in which nothing runs and nothing is mounted any more."""
        shutil.rmtree(self.root)
