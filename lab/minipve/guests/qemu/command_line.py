"""QEMU's command line for a machine, as Proxmox VE writes it (qemu-server, QemuServer.pm).

All functions are pure. The differences from Proxmox VE: taps exist before QEMU starts, so there is no
up-script; a disk without boot loader gets its kernel from outside; there are no PCI bridges, USB tablet or
screen, which make the boot of an emulated machine slower; there is always a random number device and a
logged serial console.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from minipve.base.paths import Paths
from minipve.config import drives, nics, values
from minipve.config.nics import Nic
from minipve.config.values import Config
from minipve.guests.qemu.running import X86_64_V2, Accel
from minipve.image.direct_boot import Boot

# Proxmox VE's names of CPU models that QEMU does not have, or that TCG cannot emulate. NumPy needs x86-64-v2.
CPU_MODELS = {"x86-64-v2": X86_64_V2, "x86-64-v2-AES": X86_64_V2, "kvm32": "qemu32", "kvm64": "qemu64"}
FIRST_NIC_SLOT = 0x12
NICS_ON_ROOT_BUS = 6


def quoted(value: object) -> str:
    """Escape a value in an option of QEMU: a comma is written twice."""
    return str(value).replace(",", ",,")


def machine_words(vmid: int, config: Config, paths: Paths, accel: Accel) -> Iterator[str]:
    """The words for everything except drives and NICs: name, monitor, processor, memory, fixed devices."""
    yield from ("qemu-system-x86_64", "-name", f"{quoted(config.get('name', f'VM{vmid}'))},debug-threads=on")
    yield from ("-chardev", f"socket,id=qmp,path={_socket(vmid, 'qmp', paths)},server=on,wait=off")
    yield from ("-mon", "chardev=qmp,mode=control")
    yield from ("-pidfile", str(paths.runtime(vmid, "pid")), "-nodefaults")
    if smbios := values.smbios(config):
        yield from ("-smbios", _joined("type", {"type": "1"} | smbios))
    yield from ("-smp", _smp(config), "-m", str(values.memory_mib(config)))
    machine = f"type={values.machine_type(config)}"
    yield from ("-machine", machine, "-accel", _accel(accel), "-cpu", cpu_model(config, accel))
    yield from ("-vga", "none", "-display", "none", "-boot", "strict=on")
    if values.machine_type(config) == "q35":  # the root bus is PCI Express; bridges give it pci.0, as on a pc
        yield from ("-device", "i82801b11-bridge,id=pcidmi,bus=pcie.0,addr=0x1e")
        yield from ("-device", "pci-bridge,id=pci.0,bus=pcidmi,addr=0x1,chassis_nr=1")
    yield from _fixed_devices(vmid, config, paths)


def _socket(vmid: int, kind: str, paths: Paths) -> str:
    return paths.runtime(vmid, kind).name


def _fixed_devices(vmid: int, config: Config, paths: Paths) -> Iterator[str]:
    if config.get("balloon") != "0":
        yield from ("-device", "virtio-balloon-pci,id=balloon0,bus=pci.0,addr=0x3")
    if values.agent_enabled(config):
        yield from ("-chardev", f"socket,path={_socket(vmid, 'qga', paths)},server=on,wait=off,id=qga0")
        yield from ("-device", "virtio-serial,id=qga0,bus=pci.0,addr=0x8")
        yield from ("-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0")
    log = quoted(paths.log / f"{vmid}.console.log")
    console = f"path={_socket(vmid, 'serial0', paths)},logfile={log}"
    yield from ("-chardev", f"socket,id=serial0,{console},server=on,wait=off")
    yield from ("-device", "isa-serial,chardev=serial0")
    yield from ("-object", "rng-random,filename=/dev/urandom,id=rng0")
    yield from ("-device", "virtio-rng-pci,rng=rng0,max-bytes=1024,period=1000,bus=pci.0,addr=0x1d")


def _smp(config: Config) -> str:
    sockets, cores = values.sockets_and_cores(config)
    return f"{sockets * cores},sockets={sockets},cores={cores},maxcpus={sockets * cores}"


def _accel(accel: Accel) -> str:
    return "tcg,thread=multi" if accel.name == "tcg" else accel.name


def cpu_model(config: Config, accel: Accel) -> str:
    """Return QEMU's name for the configured CPU model. Under TCG ``host`` becomes ``max``."""
    cpu = values.cpu_type(config)
    if accel.name == "kvm":
        names = {**CPU_MODELS, "x86-64-v2-AES": f"{X86_64_V2},+aes", "": "kvm64", "kvm64": "kvm64"}
    else:
        names = {**CPU_MODELS, "": "qemu64", "host": "max"}
    return names.get(cpu, cpu)


def boot_words(boot: Boot | None, tsc_khz: int | None) -> list[str]:
    """The words for direct kernel boot, with the frequency of the time stamp counter (see tsc.py)."""
    if boot is None:
        return []
    cmdline = boot.cmdline + (f" tsc_early_khz={tsc_khz}" if tsc_khz else "")
    return ["-kernel", str(boot.kernel), "-initrd", str(boot.initrd), "-append", cmdline]


def drive_words(config: Config, locate: Callable[[str, drives.Drive], Path | None]) -> Iterator[str]:
    """The words for all drives; ``locate(slot, drive)`` returns a drive's file, None for an empty CD-ROM."""
    slots = dict(drives.of(config))
    if any(slot.startswith("scsi") for slot in slots):
        model = "virtio-scsi-pci" if config.get("scsihw", "lsi").startswith("virtio") else "lsi"
        yield from ("-device", f"{model},id=scsihw0,bus=pci.0,addr=0x5")
    if any(slot.startswith("sata") for slot in slots):
        yield from ("-device", "ahci,id=ahci0,bus=pci.0,addr=0x7")
    order = boot_order(config)
    for slot, drive in slots.items():
        index = f",bootindex={100 + order.index(slot)}" if slot in order else ""
        yield from ("-drive", _backend(slot, drive, locate(slot, drive)))
        yield from ("-device", _frontend(slot, drive, values.machine_type(config)) + index)


def boot_order(config: Config) -> list[str]:
    """The devices to boot from, in order (``boot: order=scsi0;net0``)."""
    return config.get("boot", "").removeprefix("order=").split(";")


def _backend(slot: str, drive: drives.Drive, file: Path | None) -> str:
    """The host side of a drive. By default ``cache=unsafe``: disks need not survive a crash of the host."""
    words = [f"file={quoted(file)}"] if file else []
    words += ["if=none", f"id=drive-{slot}"]
    if drives.is_cdrom(drive):
        return ",".join([*words, "media=cdrom", *(["format=raw"] if file else [])])
    discard = "unmap" if drive.get("discard") == "on" else "ignore"
    kind = file.suffix.removeprefix(".") if file else "qcow2"
    return ",".join([*words, f"format={kind}", f"cache={drive.get('cache', 'unsafe')}", f"discard={discard}"])


def _frontend(slot: str, drive: drives.Drive, machine: str) -> str:
    """The guest side of a drive, by the name of its slot."""
    bus, number = slot.rstrip("0123456789"), int(slot.lstrip("abcdefghijklmnopqrstuvwxyz"))
    kind, tail = ("cd" if drives.is_cdrom(drive) else "hd"), f"drive=drive-{slot},id={slot}"
    ssd = ",rotation_rate=1" if drive.get("ssd") == "1" and kind == "hd" and bus != "virtio" else ""
    if bus == "virtio":
        return f"virtio-blk-pci,{tail},bus=pci.0,addr={0xA + number:#x}"
    if bus == "scsi":
        return f"scsi-{kind},bus=scsihw0.0,scsi-id={number},{tail}{ssd}"
    if bus == "sata":
        return f"ide-{kind},bus=ahci0.{number},{tail}{ssd}"
    place = f"bus=ide.{number},unit=0" if machine == "q35" else f"bus=ide.{number // 2},unit={number % 2}"
    return f"ide-{kind},{place},{tail}{ssd}"


def nic_words(vmid: int, config: Config, vhost: bool) -> Iterator[str]:
    """The words for all NICs; ``vhost``: whether /dev/vhost-net can be used."""
    order = boot_order(config)
    for index, nic in sorted(nics.of_config(config).items()):
        netdev, device = netdev_options(vmid, index, nic, config, vhost), device_options(index, nic)
        if f"net{index}" in order:
            device["bootindex"] = str(100 + order.index(f"net{index}"))
        else:
            device["romfile"] = ""  # a boot ROM that is not used only takes time
        yield from ("-netdev", _joined("type", netdev), "-device", _joined("driver", device))


def _joined(first: str, options: Mapping[str, str]) -> str:
    rest = [f"{key}={quoted(value)}" for key, value in options.items() if key != first]
    return ",".join([f"{first}={options[first]}" if first == "type" else options[first], *rest])


def netdev_options(vmid: int, index: int, nic: Nic, config: Config, vhost: bool) -> dict[str, str]:
    """The host side of a NIC: a tap, or QEMU's own NAT if it has no bridge."""
    if nic.bridge is None:
        return {"type": "user", "id": f"net{index}", "hostname": config.get("name", "vm")}
    tap = {"type": "tap", "id": f"net{index}", "ifname": nics.tap_name(vmid, index)}
    tap |= {"script": "no", "downscript": "no"}
    if nic.model == "virtio":
        tap |= ({"vhost": "on"} if vhost else {}) | ({"queues": str(nic.queues)} if nic.queues > 1 else {})
    return tap


def device_options(index: int, nic: Nic) -> dict[str, str]:
    """The guest side of a NIC. net0 to net5 are in the same PCI slots as on Proxmox VE."""
    driver = "virtio-net-pci" if nic.model == "virtio" else nic.model
    device = {"driver": driver, "mac": nic.mac, "netdev": f"net{index}", "id": f"net{index}"}
    if index < NICS_ON_ROOT_BUS:
        device |= {"bus": "pci.0", "addr": f"{FIRST_NIC_SLOT + index:#x}"}
    if nic.model == "virtio":
        device |= {"rx_queue_size": "1024", "tx_queue_size": "256"}
        device |= {"host_mtu": str(nic.mtu)} if nic.mtu > 1 else {}
        device |= {"mq": "on", "vectors": str(2 * nic.queues + 2)} if nic.queues > 1 else {}
    return device
