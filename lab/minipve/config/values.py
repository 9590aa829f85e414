"""The meaning of a guest's options: memory, processors, guest agent. Nothing else interprets them."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from minipve.base.errors import ApiError
from minipve.config.rules import schema
from minipve.config.rules.kinds import LXC

Config = Mapping[str, str]
_DEFAULT_MEMORY_MIB = 512


def memory_mib(config: Config) -> int:
    """Return the memory in MiB. ``memory`` is a number, or ``current=N`` in newer versions."""
    return int(_parts("memory", config, str(_DEFAULT_MEMORY_MIB))["current"])


def container_memory_mib(config: Config) -> tuple[int, int]:
    """Return a container's memory and its additional swap, in MiB."""
    return int(config.get("memory", _DEFAULT_MEMORY_MIB)), int(config.get("swap", _DEFAULT_MEMORY_MIB))


def features(config: Config) -> dict[str, str]:
    """Return a container's ``features``: ``nesting``, ``keyctl`` and so on, each "0" or "1"."""
    text = config.get("features", "")
    return schema.parse_option("features", text, LXC) if text else {}


def sockets_and_cores(config: Config) -> tuple[int, int]:
    """Return the number of sockets, and of cores in each socket."""
    return int(config.get("sockets", "1")), int(config.get("cores", "1"))


def cpu_type(config: Config) -> str:
    """Return the name of the processor model; "" for the default."""
    return _parts("cpu", config, "").get("cputype", "")


def machine_type(config: Config) -> str:
    """Return the chipset: ``pc`` (i440FX) or ``q35``."""
    return _parts("machine", config, "").get("type", "pc")


def smbios(config: Config) -> dict[str, str]:
    """Return the firmware's description of the machine (``uuid``, ``serial`` ...), decoded from base64."""
    fields = _parts("smbios1", config, "")
    encoded = fields.pop("base64", "0") == "1"
    return {key: _decoded(value) if encoded and key != "uuid" else value for key, value in fields.items()}


def _decoded(value: str) -> str:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except ValueError:
        raise ApiError(f"smbios1: '{value}' is not base64 of a text") from None
    if "\0" in text:
        raise ApiError(f"smbios1: '{value}' contains a null character")
    return text


def agent_enabled(config: Config) -> bool:
    """Return whether the guest agent is on: ``1``, ``enabled=1``, ``fstrim_cloned_disks=1,enabled=yes``."""
    return _parts("agent", config, "0")["enabled"] == "1"


def _parts(option: str, config: Config, default: str) -> dict[str, str]:
    return schema.parse_option(option, config.get(option, default))
