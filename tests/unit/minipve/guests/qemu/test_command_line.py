"""QEMU's command line of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from minipve.base.paths import Paths
from minipve.config import nics, values
from minipve.guests.qemu import command_line, power
from minipve.guests.qemu.running import Accel
from minipve.image.direct_boot import Boot

TCG, KVM = Accel("tcg", "a test"), Accel("kvm", "a test")


CONFIG = {
    "name": "worker-1",
    "cores": "2",
    "memory": "2048",
    "cpu": "x86-64-v2-AES",
    "agent": "enabled=1",
    "boot": "order=virtio0",
    "virtio0": "local:9103/vm-9103-disk-0.qcow2,discard=on",
    "ide2": "local:9103/vm-9103-cloudinit.qcow2,media=cdrom",
    "net0": "virtio=02:DA:5C:23:8F:00,bridge=vmbr0",
    "net1": "e1000=02:DA:5C:23:8F:01,bridge=vmbr1,rate=12.5",
    "net2": "rtl8139=02:DA:5C:23:8F:02,bridge=vmbr1",
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "state", tmp_path / "cache")
    disk = paths.state / "storage/images/9103/vm-9103-disk-0.qcow2"
    disk.parent.mkdir(parents=True)
    disk.touch()
    return paths


def line(paths: Paths, monkeypatch: pytest.MonkeyPatch, accel: Accel = TCG, boot: Boot | None = None) -> str:
    monkeypatch.setattr(power.direct_boot, "of_disk", lambda _image, _paths: boot)
    monkeypatch.setattr(power, "vhost_works", lambda: False)
    monkeypatch.setattr(power, "sandbox_words", lambda: ("-sandbox", power._SANDBOX))
    return " ".join(power.qemu_argv(9103, CONFIG, paths, accel))


@pytest.mark.parametrize(
    "part",
    [
        "qemu-system-x86_64 -name worker-1,debug-threads=on",
        "-chardev socket,id=qmp,path=9103.qmp,server=on,wait=off -mon chardev=qmp,mode=control",
        "-pidfile {run}/9103.pid -nodefaults",
        "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-smp 2,sockets=1,cores=2,maxcpus=2 -m 2048",
        "-machine type=pc -accel tcg,thread=multi -cpu qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt",
        "-device virtserialport,chardev=qga0,name=org.qemu.guest_agent.0",
        "-drive file={images}/9103/vm-9103-disk-0.qcow2,if=none,id=drive-virtio0,format=qcow2,"
        "cache=unsafe,discard=unmap -device virtio-blk-pci,drive=drive-virtio0,id=virtio0,"
        "bus=pci.0,addr=0xa,bootindex=100",
        "file={state}/seeds/vm-9103-cloudinit.iso,if=none,id=drive-ide2,media=cdrom,format=raw "
        "-device ide-cd,bus=ide.1,unit=0,drive=drive-ide2,id=ide2",
        "-netdev type=tap,id=net0,ifname=tap9103i0,script=no,downscript=no "
        "-device virtio-net-pci,mac=02:DA:5C:23:8F:00,netdev=net0,id=net0,bus=pci.0,addr=0x12,"
        "rx_queue_size=1024,tx_queue_size=256,romfile=",
        "-device e1000,mac=02:DA:5C:23:8F:01,netdev=net1,id=net1,bus=pci.0,addr=0x13,romfile=",
        "-device rtl8139,mac=02:DA:5C:23:8F:02,netdev=net2,id=net2,bus=pci.0,addr=0x14,romfile=",
    ],
)
def test_command_line(part: str, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"run": paths.run, "state": paths.state, "images": paths.state / "storage/images"}
    assert part.format(**places) in line(paths, monkeypatch)


def test_direct_boot_adds_kernel_and_initrd(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = Boot(Path("/b/kernel"), Path("/b/initrd"), "quiet console=ttyS0")
    assert "-kernel /b/kernel -initrd /b/initrd -append quiet console=ttyS0" in line(
        paths, monkeypatch, boot=boot
    )
    assert "-kernel" not in line(paths, monkeypatch)


@pytest.mark.parametrize(
    ("cpu", "accel", "model"),
    [
        ("x86-64-v2-AES", TCG, "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"),
        ("x86-64-v2-AES", KVM, "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+aes"),
        ("host", TCG, "max"),
        ("host", KVM, "host"),
        ("cputype=kvm64,flags=+aes", TCG, "qemu64"),
        ("", KVM, "kvm64"),
        ("Haswell", TCG, "Haswell"),
    ],
)
def test_cpu_model(cpu: str, accel: Accel, model: str) -> None:
    assert command_line.cpu_model({"cpu": cpu}, accel) == model


@pytest.mark.parametrize(
    ("agent", "enabled"),
    [
        ("1", True),
        ("enabled=1,fstrim_cloned_disks=1", True),
        ("fstrim_cloned_disks=1,enabled=1", True),
        ("fstrim_cloned_disks=1,enabled=yes", True),
        ("0", False),
        ("fstrim_cloned_disks=1,enabled=0", False),
    ],
)
def test_agent_port_exists_if_the_agent_is_enabled(agent: str, enabled: bool, paths: Paths) -> None:
    assert values.agent_enabled({"agent": agent}) is enabled
    words = " ".join(command_line.machine_words(9103, {"agent": agent}, paths, TCG))
    assert ("guest_agent" in words) is enabled


@pytest.mark.parametrize(("memory", "mib"), [("2048", 2048), ("current=96", 96), (None, 512)])
def test_memory_size(memory: str | None, mib: int, paths: Paths) -> None:
    config = {} if memory is None else {"memory": memory}
    assert values.memory_mib(config) == mib
    assert f" -m {mib} " in " ".join(command_line.machine_words(9103, config, paths, TCG))


def test_comma_in_a_path_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the rest of the file name would be another option of the drive."""
    paths = Paths(tmp_path / "state,file=/etc/shadow", tmp_path)
    disk = paths.state / "storage/images/9103/vm-9103-disk-0.qcow2"
    disk.parent.mkdir(parents=True)
    disk.touch()
    text = line(paths, monkeypatch)
    assert f"file={tmp_path}/state,,file=/etc/shadow/storage" in text
    assert f"logfile={tmp_path}/state,,file=/etc/shadow/log/9103.console.log,server=on" in text


def test_smbios_is_decoded_and_quoted(paths: Paths) -> None:
    config = {"smbios1": "base64=1,serial=YSxiPWM=,uuid=11111111-2222-3333-4444-555555555555"}
    words = list(command_line.machine_words(9103, config, paths, TCG))
    option = words[words.index("-smbios") + 1]
    assert sorted(option.replace(",,", ";").split(",")) == [
        "serial=a;b=c",
        "type=1",
        "uuid=11111111-2222-3333-4444-555555555555",
    ]


def test_vhost_for_virtio_only() -> None:
    virtio, e1000 = (nics.parse(f"{model}=02:00:00:00:00:01,bridge=vmbr0") for model in ("virtio", "e1000"))
    assert command_line.netdev_options(1, 0, virtio, {}, vhost=True)["vhost"] == "on"
    assert "vhost" not in command_line.netdev_options(1, 0, e1000, {}, vhost=True)


def test_nic_without_bridge_uses_nat() -> None:
    words = list(command_line.nic_words(1, {"name": "a", "net0": "virtio=02:00:00:00:00:01"}, vhost=True))
    assert words[:2] == ["-netdev", "type=user,id=net0,hostname=a"]
