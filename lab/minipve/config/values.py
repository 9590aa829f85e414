"""The meaning of a guest's options, and changes that wait."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from minipve.base.errors import ApiError, parameter_error
from minipve.config.rules import schema
from minipve.config.rules.schema import LXC, QEMU, Kind
from minipve.config.store import GuestConfig, typed

# The meaning of a guest's options: memory, processors, guest agent. Nothing else interprets them.

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


# Pending changes of a configuration, and option values, in the form that the API returns.


def rows(config: GuestConfig) -> list[dict[str, object]]:
    """Return the rows of ``GET .../pending``: current value, pending value, deletion mark."""
    result: list[dict[str, object]] = []
    for key in sorted({*config.options, *config.pending}):
        row: dict[str, object] = {"key": key}
        if key in config.options:
            row["value"] = api_value(key, config.options[key], config.kind)
        if key in config.pending:
            row["pending"] = api_value(key, config.pending[key], config.kind)
        if key in config.deleted:
            row["delete"] = 1
        result.append(row)
    return [*result, {"key": "digest", "value": config.digest}]


def api_value(key: str, value: str, kind: Kind = QEMU) -> str | int:
    """Return an option's value as the API shows it: typed, with passwords hidden."""
    if key == "description" and kind is LXC:
        return value.removesuffix("\n") + "\n"
    return "**********" if key == "cipassword" else typed(key, value, kind)


def check_deletable(names: Iterable[str], kind: Kind = QEMU) -> None:
    """Raise 400 for a name that is not an option."""
    for name in names:
        check_exists(name, kind, "delete")


def check_exists(name: str, kind: Kind, parameter: str) -> None:
    """Raise 400 for ``parameter`` when ``name`` is not an option."""
    try:
        schema.option(name, kind)
    except KeyError:
        raise parameter_error(**{parameter: f"unknown option '{name}'"}) from None
