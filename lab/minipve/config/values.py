"""What a VM's options mean: memory, processors, guest agent. Each is read here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from lab.minipve.config import schema

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


def agent_enabled(config: Config) -> bool:
    """Whether the guest agent is on: ``1``, ``enabled=1``, ``fstrim_cloned_disks=1,enabled=yes``."""
    return _parts("agent", config, "0")["enabled"] == "1"


def _parts(option: str, config: Config, default: str) -> dict[str, str]:
    return schema.parse_option(option, config.get(option, default))
