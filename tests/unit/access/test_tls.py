"""TLS of ports: its versions, its files, and their renewal."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from app.commands.doctor.installation import examine_tls
from app.http.connections import Connections, PortLimits
from app.service.serving import make_server, serving
from app.service.tls import Certificate, certificates
from app.settings.main import HttpSettings, MediatorSettings, MissingSetting
from tests.process.access.certificates import write_certificate


async def hello(scope: Any, receive: Any, send: Any) -> None:
    body = scope["scheme"].encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(certificate: Certificate) -> AsyncIterator[int]:
    server = make_server(hello, Connections(PortLimits()), certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def fetch(port: int, context: ssl.SSLContext, host: str = "localhost") -> tuple[str, str]:
    """Send a request over a new connection; return the certificate's subject, and the answer."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=host
    )
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    response = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    name = x509.load_der_x509_certificate(der).subject.rfc4514_string()
    return name, response.rpartition("\r\n")[2]


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.chain))


async def test_a_port_uses_tls_and_follows_a_renewed_certificate(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    async with served(certificate) as port:
        assert await fetch(port, trusting(certificate)) == ("CN=first", "https")
        write_certificate(tmp_path, "second")
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert await fetch(port, trusting(certificate)) == ("CN=second", "https")


async def test_renewed_files_that_do_not_match_keep_the_former_pair_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = write_certificate(tmp_path, "first")
    trusted = trusting(certificate)
    async with served(certificate) as port:
        assert await fetch(port, trusted) == ("CN=first", "https")
        key = certificate.key.read_bytes()
        write_certificate(tmp_path, "second")
        certificate.key.write_bytes(key)
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert "is not used" in caplog.text
        assert await fetch(port, trusted) == ("CN=first", "https")
        certificate.key.unlink()
        await certificate.reread()
        assert await fetch(port, trusted) == ("CN=first", "https")


def renew_secret(directory: Path, name: str, stamp: str) -> None:
    """Renew the files like a mounted Secret, of which the kubelet replaces one link."""
    (folder := directory / f"..{stamp}").mkdir()
    files = write_certificate(folder, name)
    for file in (files.chain, files.key):
        os.utime(file, ns=(7, 7))  # so that their times do not change
        if not (link := directory / file.name).is_symlink():
            link.symlink_to(Path("..data") / file.name)
    data = directory / "..data"
    before = data.resolve()
    (link := directory / "..data_tmp").symlink_to(folder.name)
    link.replace(data)
    if before != data:
        shutil.rmtree(before)


async def test_a_mounted_secret_is_followed_when_its_link_is_replaced(tmp_path: Path) -> None:
    renew_secret(tmp_path, "first", "2026_11_01")
    certificate = Certificate("data", tmp_path / "tls.crt", tmp_path / "tls.key")
    async with served(certificate) as port:
        assert await fetch(port, trusting(certificate)) == ("CN=first", "https")
        for number in range(3):
            renew_secret(tmp_path, f"renewed {number}", f"2026_12_0{number}")
            await certificate.reread()
            assert await fetch(port, trusting(certificate)) == (f"CN=renewed {number}", "https")


async def test_a_client_without_server_name_gets_the_renewed_certificate(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    async with served(certificate) as port:
        write_certificate(tmp_path, "second")
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert await fetch(port, unverified, host="") == ("CN=second", "https")


@pytest.mark.parametrize("torn", ["certificate", "key", "both"])
async def test_half_written_files_keep_the_former_pair_in_use(tmp_path: Path, torn: str) -> None:
    certificate = write_certificate(tmp_path, "first")
    trusted = trusting(certificate)
    async with served(certificate) as port:
        assert await fetch(port, trusted) == ("CN=first", "https")
        write_certificate(tmp_path, "second")
        renewed = trusting(certificate)
        files = {"certificate": [certificate.chain], "key": [certificate.key]}
        half_written = files.get(torn, [certificate.chain, certificate.key])
        contents = {file: file.read_bytes() for file in half_written}
        for file, text in contents.items():
            file.write_bytes(text[: len(text) // 2])
        await certificate.reread()
        assert await fetch(port, trusted) == ("CN=first", "https")
        for file, text in contents.items():
            file.write_bytes(text)
        await certificate.reread()
        assert await fetch(port, renewed) == ("CN=second", "https")


async def test_files_replaced_during_a_reload_keep_the_former_pair_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaced between check and use, they would leave a certificate without its key."""
    certificate = write_certificate(tmp_path, "first")
    trusted = trusting(certificate)
    load = Certificate.load

    def load_and_replace(self: Certificate) -> ssl.SSLContext:
        context = load(self)
        self.key.write_bytes(b"not a key any more")
        return context

    async with served(certificate) as port:
        assert await fetch(port, trusted) == ("CN=first", "https")
        write_certificate(tmp_path, "second")
        renewed = trusting(certificate)
        monkeypatch.setattr(Certificate, "load", load_and_replace)
        os.utime(certificate.chain, ns=(1, 1))
        await certificate.reread()
        assert await fetch(port, renewed) == ("CN=second", "https")


async def test_versions_before_1_2_are_refused(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    context = trusting(certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with served(certificate) as port:
        assert await fetch(port, context) == ("CN=first", "https")


def test_unusable_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("port", ["", "admin_"])
async def test_a_port_whose_files_do_not_fit_ends_the_start_before_a_store_is_touched(
    tmp_path: Path, port: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    good, other = write_certificate(tmp_path / "a", "a"), write_certificate(tmp_path / "b", "b")
    mixed = HttpSettings.model_validate(
        {f"{port}tls_certificate": good.chain, f"{port}tls_key": other.key}
    )
    untouched = MediatorSettings(embedded=True, data_dir=tmp_path / "untouched")
    with pytest.raises(MissingSetting, match="is not that of the certificate"):
        async with serving(mixed, untouched):
            raise AssertionError
    assert not untouched.data_dir.exists()


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path, "first")
    settings = HttpSettings(admin_tls_certificate=certificate.chain, admin_tls_key=certificate.key)
    assert set(certificates(settings)) == {"admin"}
    assert settings.admin_url == "https://127.0.0.1:8081"
    assert certificates(HttpSettings()) == {}
    with pytest.raises(MissingSetting, match="PORTOLAN_TLS_CERTIFICATE and PORTOLAN_TLS_KEY"):
        certificates(HttpSettings(tls_key=certificate.key))


@pytest.mark.parametrize(
    ("days", "found", "detail"), [(60, True, "days from now"), (-1, False, "the certificate ended")]
)
def test_the_doctor_reports_how_long_a_certificate_is_valid(
    tmp_path: Path, days: float, found: bool, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = write_certificate(tmp_path, "first", days=days)
    settings = HttpSettings(tls_certificate=certificate.chain, tls_key=certificate.key)
    [finding] = examine_tls(settings)
    assert (finding.what, finding.found, finding.fatal) == ("TLS of the data port", found, False)
    assert detail in finding.detail
    assert certificate.context is certificate.context
    assert ("expired" in caplog.text) is not found


def test_the_doctor_finds_files_that_cannot_be_used(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    [finding] = examine_tls(HttpSettings(tls_certificate=nowhere, tls_key=nowhere))
    assert finding.fatal
    [finding] = examine_tls(HttpSettings(tls_certificate=nowhere))
    assert finding.fatal
