"""The endpoint's certificate, signed by a certificate authority of its own, as each PVE node has it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import uuid
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minipve.atomic import write_atomic
from minipve.user_error import UserError

_AUTHORITY_DAYS, _NODE_DAYS = 3650, 730


def _name(common: str, organisation: str, unit: str) -> x509.Name:
    fields = {
        NameOID.ORGANIZATIONAL_UNIT_NAME: unit,
        NameOID.ORGANIZATION_NAME: organisation,
        NameOID.COMMON_NAME: common,
    }
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in fields.items()])


def _builder(subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("Proxmox Virtual Environment", "PVE Cluster Manager CA", str(uuid.uuid4()))
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(name, name, _AUTHORITY_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def _server(
    node: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1")]
    names += [x509.DNSName("localhost"), x509.DNSName(node)]
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        _builder(
            _name(node, "Proxmox Virtual Environment", "PVE Cluster Node"), authority.subject, _NODE_DAYS
        )
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def ensure(directory: Path, node: str) -> Path:
    """Make the authority and the node's certificate unless they are there; returns the authority's file."""
    ca_file, cert_file = directory / "pve-root-ca.pem", directory / "pve-ssl.pem"
    if not cert_file.exists():
        signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        authority = _authority(signer)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_atomic(ca_file, _pem(authority), 0o644)
        write_atomic(directory / "pve-ssl.key", private.decode(), 0o600)
        write_atomic(cert_file, _pem(_server(node, key, authority, signer)), 0o644)
    return ca_file


def context(directory: Path) -> ssl.SSLContext:
    """The server's TLS settings."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(directory / "pve-ssl.pem", directory / "pve-ssl.key")
    except (ssl.SSLError, OSError) as error:
        hint = f"rm {directory}/pve-*   (new ones are made; clients need the new pve-root-ca.pem)"
        raise UserError(f"{directory / 'pve-ssl.pem'} or its key is damaged: {error}", hint) from error
    return made


@cache
def fingerprint(directory: Path) -> str:
    """The certificate's SHA-256 as ``AA:BB:...`` (PVE's ``ssl_fingerprint``)."""
    certificate = x509.load_pem_x509_certificate((directory / "pve-ssl.pem").read_bytes())
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()
