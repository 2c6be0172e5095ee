"""Self-signed certificates for ports of this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from app.service.tls import Certificate

__all__ = ["write_certificate"]

_LOCALHOST: Final = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))


def write_certificate(
    directory: Path, name: str, *, days: float = 30, password: bytes | None = None
) -> Certificate:
    """Write a self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ends = datetime.now(UTC) + timedelta(days=days)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=90))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName(_LOCALHOST), critical=False)
        .sign(key, SHA256())
    )
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    files = Certificate("data", directory / "tls.crt", directory / "tls.key")
    files.chain.write_bytes(certificate.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return files
