"""The settings of an endpoint: where the API is, and the token that calls it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from dasklab.errors import LabError
from dasklab.model.forms.strict import Strict, validate

REQUIRED = {  # setting -> where the example inventory takes it from
    "host": "PROXMOX_HOST: name or address of a node",
    "user": "PROXMOX_USER: such as lab@pve",
    "token_id": "PROXMOX_TOKEN_ID: the token's name, such as dasklab",
    "token_secret": "PROXMOX_TOKEN_SECRET: what pveum printed when it made the token",
}


def url_of(host: str, port: int) -> str:
    """Return the URL of an endpoint. An IPv6 address stands in brackets."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _host_of(text: str) -> str | None:
    """Return the host in a URL or in ``HOST:PORT``; a host alone as it is; None if there is none."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        pass
    else:
        return text
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname
    except ValueError:
        return None


def mistake_in_host(text: str) -> str:
    """Say why a text is not a name or an address alone, as ssh and messages need it; empty if it is."""
    host = _host_of(text)
    if host == text.lower():
        return ""
    other = "" if host is None else f": {host}"
    return f"{text!r} must be a name or an address alone{other} (without https://; the port is proxmox.port)"


class Endpoint(Strict):
    """Address, API token and TLS settings. ``verify: false`` must be set explicitly."""

    host: str
    port: Annotated[int, Field(ge=1, le=65535)] = 8006
    user: Annotated[str, Field(pattern=r"^[^@!]+@[^@!]+$")]
    token_id: str
    token_secret: Annotated[str, Field(repr=False)]
    ca_file: str | None = None
    verify: bool = True
    timeout_s: Annotated[float, Field(gt=0)] = 60  # waiting for a lock takes 10 s, refusing a token 3 s

    @field_validator("host")
    @classmethod
    def _is_host(cls, value: str) -> str:
        if mistake := mistake_in_host(value):
            raise ValueError(mistake)
        return value

    @field_validator("token_id")
    @classmethod
    def _is_short(cls, value: str) -> str:
        """Refuse the token's full name, ``USER@REALM!ID``."""
        if "!" in value and value.isascii() and value.isprintable():
            raise ValueError(f"{value!r} must be only the part after the '!': {value.rpartition('!')[2]}")
        return value

    @field_validator("user", "token_id", "token_secret")
    @classmethod
    def _header_safe(cls, value: str) -> str:
        """Refuse what no HTTP header can hold. The message leaves the value out: it may be the secret."""
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError("has a line break, a space or a character beyond ASCII in it")
        return value

    @classmethod
    def from_inventory(cls, settings: Mapping[str, Any]) -> Endpoint:
        """Build the endpoint from the inventory's ``proxmox`` mapping. Empty values count as missing.

        Raises:
            LabError: required settings are missing (all are listed) or a setting is invalid.
        """
        present = {k: v for k, v in settings.items() if k in cls.model_fields and v not in (None, "")}
        if missing := [f"{key} ({source})" for key, source in REQUIRED.items() if key not in present]:
            raise LabError(f"the inventory's 'proxmox' mapping lacks {', '.join(missing)}")
        return validate(cls, present, "inventory: proxmox")

    @property
    def url(self) -> str:
        return url_of(self.host, self.port)

    @property
    def token(self) -> str:
        """The token's full name, ``USER@REALM!ID``."""
        return f"{self.user}!{self.token_id}"
