"""The endpoint's certificate, signed by its own certificate authority, as on a PVE node."""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
from functools import cache
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from minipve.base.atomic import write_atomic
from minipve.base.errors import UserError

log = logging.getLogger(__name__)

CA_FILE, CERTIFICATE_FILE = "pve-root-ca.pem", "pve-ssl.pem"


def ensure(directory: Path, node: str, host: str) -> Path:
    """Create the authority and the node's certificate unless they exist and cover the address ``host``.

    Returns:
        The authority's file.
    """
    ca_file, cert_file = directory / CA_FILE, directory / CERTIFICATE_FILE
    if cert_file.exists() and not _covers(cert_file, host):
        log.warning("the certificate does not cover %s, so a new one replaces it: %s", host, ca_file)
        cert_file.unlink()
    if not cert_file.exists():
        unit = "Proxmox Virtual Environment"
        authority = trustme.CA(organization_name="PVE Cluster Manager CA", organization_unit_name=unit)
        names = dict.fromkeys(("127.0.0.1", "::1", "localhost", node, socket.gethostname(), host))
        leaf = authority.issue_cert(*names, organization_name=unit, organization_unit_name="PVE Cluster Node")
        write_atomic(ca_file, authority.cert_pem.bytes().decode(), 0o644)
        write_atomic(directory / "pve-ssl.key", leaf.private_key_pem.bytes().decode(), 0o600)
        write_atomic(cert_file, leaf.cert_chain_pems[0].bytes().decode(), 0o644)
    return ca_file


def _covers(cert_file: Path, host: str) -> bool:
    """Return whether a certificate contains an address; also for a damaged one, which `context` reports."""
    try:
        certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return True
    return ipaddress.ip_address(host) in names.get_values_for_type(x509.IPAddress)


def context(directory: Path) -> ssl.SSLContext:
    """Return the server's TLS settings."""
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        settings.load_cert_chain(directory / "pve-ssl.pem", directory / "pve-ssl.key")
    except (ssl.SSLError, OSError) as error:
        hint = (
            f"rm {directory}/pve-*   (the next start creates new ones; clients need the new pve-root-ca.pem)"
        )
        raise UserError(f"{directory / 'pve-ssl.pem'} or its key is damaged: {error}", hint) from error
    return settings


@cache
def fingerprint(directory: Path) -> str:
    """Return the certificate's SHA-256 as ``AA:BB:...`` (PVE's ``ssl_fingerprint``)."""
    certificate = x509.load_pem_x509_certificate((directory / "pve-ssl.pem").read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def describe(file: Path) -> dict[str, Any]:
    """Return a certificate as PVE describes it: names, dates, key, fingerprint and text."""
    pem = file.read_text()
    certificate = x509.load_pem_x509_certificate(pem.encode())
    key = certificate.public_key()
    row = {
        "filename": file.name,
        "fingerprint": certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        "subject": _name(certificate.subject),
        "issuer": _name(certificate.issuer),
        "notbefore": int(certificate.not_valid_before_utc.timestamp()),
        "notafter": int(certificate.not_valid_after_utc.timestamp()),
        "pem": pem,
        "san": _alternative_names(certificate),
    }
    if isinstance(key, ec.EllipticCurvePublicKey):  # the only kind that trustme creates
        row |= {"public-key-type": "id-ecPublicKey", "public-key-bits": key.key_size}
    return row


def _name(name: x509.Name) -> str:
    """Return a name as OpenSSL writes it on one line: ``/O=Organization/OU=Unit``."""
    return "".join(f"/{attribute.rfc4514_string()}" for attribute in name)


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]
