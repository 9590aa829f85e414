"""The shell variables of common clients: community.proxmox, Terraform's provider bpg/proxmox, dasklab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def variables(endpoint: Mapping[str, Any], password: str) -> dict[str, str]:
    """Return the variables for an endpoint.

    Args:
        endpoint: the contents of ``endpoint.json``.
        password: the password of root@pam.
    """
    token = f"{endpoint['user']}!{endpoint['token_id']}={endpoint['token_secret']}"
    return {
        "PROXMOX_URL": endpoint["url"],
        "PROXMOX_HOST": endpoint["host"],
        "PROXMOX_PORT": str(endpoint["port"]),
        "PROXMOX_NODE": endpoint["node"],
        "PROXMOX_USER": endpoint["user"],
        "PROXMOX_PASSWORD": password,
        "PROXMOX_TOKEN_ID": endpoint["token_id"],
        "PROXMOX_TOKEN_SECRET": endpoint["token_secret"],
        "PROXMOX_CA_FILE": endpoint["ca_file"],
        "PROXMOX_VE_ENDPOINT": endpoint["url"],
        "PROXMOX_VE_API_TOKEN": token,
        "MINIPVE_CONNECT": endpoint["connect"],
    }
