"""LXC's configuration file of a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from minipve.base.paths import Paths
from minipve.config import container_nics, values
from minipve.guests.lxc import cgroups, chroot, user_ids

_INCLUDES = Path("/usr/share/lxc/config")
_APPARMOR = Path("/sys/kernel/security/apparmor")


def log_file(vmid: int, paths: Paths) -> Path:
    return paths.log / f"lxc-{vmid}.log"


def text(vmid: int, options: Mapping[str, str], paths: Paths, first_id: int) -> str:
    """Return LXC's configuration.

    Args:
        vmid: the container.
        options: its options.
        paths: its node's paths.
        first_id: the user ID of its root on the host; 0 for a privileged container.
    """
    nesting = values.features(options).get("nesting") == "1"
    access = "rw" if nesting else "mixed"
    includes = ["common.conf", *(["userns.conf"] if first_id else []), *(["nesting.conf"] if nesting else [])]
    lines = [f"lxc.include = {_INCLUDES / name}" for name in includes if (_INCLUDES / name).exists()]
    lines += [
        f"lxc.rootfs.path = dir:{chroot.MOUNT_POINT}",
        f"lxc.uts.name = {options.get('hostname', 'localhost').partition('.')[0]}",
        f"lxc.init.cmd = {options.get('entrypoint', '/sbin/init')}",
        f"lxc.apparmor.profile = {'generated' if _APPARMOR.is_dir() else 'unconfined'}",
        *(["lxc.apparmor.allow_nesting = 1"] if nesting and _APPARMOR.is_dir() else []),
        "lxc.tty.dir =",
        "lxc.mount.auto =",
        f"lxc.mount.auto = proc:{access} sys:{access} cgroup:mixed",
        f"lxc.tty.max = {options.get('tty', '2')}",
        "lxc.console.path = none",
        f"lxc.log.file = {log_file(vmid, paths)}",
        "lxc.log.level = 5",
        *cgroups.lxc_lines(vmid, paths),
    ]
    if first_id:
        lines += [f"lxc.idmap = {kind} 0 {first_id} {user_ids.COUNT}" for kind in "ug"]
    for index, nic in container_nics.of_config(options).items():
        lines += _nic_lines(vmid, index, nic)
    return "\n".join([*lines, ""])


def _nic_lines(vmid: int, index: int, nic: container_nics.ContainerNic) -> list[str]:
    settings = {
        "type": "veth",
        "veth.pair": container_nics.host_name(vmid, index),
        "link": "" if nic.link_down or nic.tag or nic.trunks else nic.bridge,
        "name": nic.name,
        "hwaddr": nic.mac,
        "mtu": str(nic.mtu) if nic.mtu else "",
        "flags": "up" if nic.host_managed else "",
        "ipv4.address": nic.ip if nic.host_managed and "/" in nic.ip else "",
        "ipv4.gateway": nic.gateway if nic.host_managed else "",
        "ipv6.address": nic.ip6 if nic.host_managed and "/" in nic.ip6 else "",
        "ipv6.gateway": nic.gateway6 if nic.host_managed else "",
    }
    return [f"lxc.net.{index}.{key} = {value}" for key, value in settings.items() if value]
