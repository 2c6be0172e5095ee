"""Ports that speak TLS: with which versions, with which files, and with renewed ones."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
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

from app.doctor import examine_tls
from app.serve import _server
from app.settings import HttpSettings, MissingSetting
from app.tls import Certificate, certificates


def write_certificate(
    directory: Path, name: str, *, days: float = 30, password: bytes | None = None
) -> Certificate:
    """Write a certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    told = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ends = datetime.now(UTC) + timedelta(days=days)
    made = (
        x509.CertificateBuilder()
        .subject_name(told)
        .issuer_name(told)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=90))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, SHA256())
    )
    hidden = NoEncryption() if password is None else BestAvailableEncryption(password)
    files = Certificate("data", directory / "tls.crt", directory / "tls.key")
    files.chain.write_bytes(made.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    return files


async def hello(scope: Any, receive: Any, send: Any) -> None:
    body = scope["scheme"].encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(certificate: Certificate) -> AsyncIterator[int]:
    server = _server(hello, certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def asked(port: int, context: ssl.SSLContext) -> tuple[str, str]:
    """Ask over a connection of its own; returns whose certificate answered, and what it said."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    said = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    name = x509.load_der_x509_certificate(shown).subject.rfc4514_string()
    return name, said.rpartition("\r\n")[2]


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.chain))


async def test_a_port_speaks_tls_and_follows_a_renewed_certificate(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    async with served(certificate) as port:
        assert await asked(port, trusting(certificate)) == ("CN=first", "https")
        write_certificate(tmp_path, "second")
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert await asked(port, trusting(certificate)) == ("CN=second", "https")


async def test_renewed_files_that_do_not_fit_leave_the_old_ones_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = write_certificate(tmp_path, "first")
    trusted = trusting(certificate)
    async with served(certificate) as port:
        assert await asked(port, trusted) == ("CN=first", "https")
        key = certificate.key.read_bytes()
        write_certificate(tmp_path, "second")
        certificate.key.write_bytes(key)
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert "is not used" in caplog.text
        assert await asked(port, trusted) == ("CN=first", "https")
        certificate.key.unlink()
        await certificate.reread()
        assert await asked(port, trusted) == ("CN=first", "https")


async def test_versions_before_1_2_are_refused(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    newest = trusting(certificate)
    newest.maximum_version = ssl.TLSVersion.TLSv1_2
    async with served(certificate) as port:
        assert await asked(port, newest) == ("CN=first", "https")


def test_files_that_are_of_no_use_are_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    good, other = write_certificate(tmp_path / "a", "a"), write_certificate(tmp_path / "b", "b")
    mixed = Certificate("data", good.chain, other.key)
    with pytest.raises(MissingSetting, match="is not that of the certificate"):
        mixed.check()
    with pytest.raises(MissingSetting, match=r"nowhere\.key is not there"):
        Certificate("data", good.chain, tmp_path / "nowhere.key").check()
    with pytest.raises(MissingSetting, match="hold no certificate and key"):
        Certificate("data", good.key, good.chain).check()
    hidden = write_certificate(tmp_path / "a", "a", password=b"secret")
    with pytest.raises(MissingSetting, match="is encrypted"):
        hidden.check()


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    settings = HttpSettings(admin_tls_certificate=certificate.chain, admin_tls_key=certificate.key)
    assert set(certificates(settings)) == {"admin"}
    assert settings.admin_url == "https://127.0.0.1:8081"
    assert certificates(HttpSettings()) == {}
    with pytest.raises(MissingSetting, match="PORTOLAN_TLS_CERTIFICATE and PORTOLAN_TLS_KEY"):
        certificates(HttpSettings(tls_key=certificate.key))


@pytest.mark.parametrize(
    ("days", "found", "told"), [(60, True, "days from now"), (-1, False, "the certificate ended")]
)
def test_the_doctor_tells_how_long_a_certificate_lasts(
    tmp_path: Path, days: float, found: bool, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = write_certificate(tmp_path, "first", days=days)
    settings = HttpSettings(tls_certificate=certificate.chain, tls_key=certificate.key)
    [finding] = examine_tls(settings)
    assert (finding.what, finding.found, finding.fatal) == ("TLS of the data port", found, False)
    assert told in finding.detail
    assert certificate.context is certificate.context
    assert ("ended" in caplog.text) is not found


def test_the_doctor_finds_files_that_cannot_be_used(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    [finding] = examine_tls(HttpSettings(tls_certificate=nowhere, tls_key=nowhere))
    assert finding.fatal
    [finding] = examine_tls(HttpSettings(tls_certificate=nowhere))
    assert finding.fatal
