"""What a VM's options mean: memory, processors, guest agent. Each is read here and nowhere else."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from lab.minipve.config import schema
from lab.minipve.config.validate import FormatError

Config = Mapping[str, str]
_DEFAULT_MEMORY_MIB = 512


def memory_mib(config: Config) -> int:
    """The memory in MiB; ``memory`` is a number, or ``current=N`` in newer versions."""
    return int(_parts("memory", config, str(_DEFAULT_MEMORY_MIB))["current"])


def sockets_and_cores(config: Config) -> tuple[int, int]:
    """How many sockets the machine has, and how many cores each of them."""
    return int(config.get("sockets", "1")), int(config.get("cores", "1"))


def cpu_type(config: Config) -> str:
    """The name of the processor model; empty when none is chosen."""
    return _parts("cpu", config, "").get("cputype", "")


def machine_type(config: Config) -> str:
    """The chipset: ``pc`` (i440FX) or ``q35``."""
    return _parts("machine", config, "").get("type", "pc")


def smbios(config: Config) -> dict[str, str]:
    """What the firmware tells of the machine; with ``base64=1`` all but the UUID is encoded."""
    parts = _parts("smbios1", config, "")
    if parts.pop("base64", "0") == "0":
        return parts
    return {key: text if key == "uuid" else _decoded(text) for key, text in parts.items()}


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text).decode(errors="replace")
    except binascii.Error:
        raise FormatError(f"smbios1: '{text}' is not base64") from None


def agent_enabled(config: Config) -> bool:
    """Whether the guest agent is on: ``1``, ``enabled=1``, ``fstrim_cloned_disks=1,enabled=yes``."""
    return _parts("agent", config, "0")["enabled"] == "1"


def _parts(option: str, config: Config, default: str) -> dict[str, str]:
    return schema.parse_option(option, config.get(option, default))
