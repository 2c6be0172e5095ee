"""A service whose ports use TLS, and its clients: commands, the health check, plain HTTP."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from app.service.tls import Certificate
from mediator.stores.port import SystemConfig
from tests.faults.conditions import WITHIN_S, eventually
from tests.faults.operation.forked import called
from tests.faults.service import Service
from tests.process.access.certificates import write_certificate
from tests.process.caching.guarded import bearer
from tests.process.service import scratch_catalogue


async def run(*arguments: str, **settings: str) -> tuple[int, str]:
    """Run `portolan`; return its exit status and its output."""
    result = await called(arguments, {**os.environ, "COLUMNS": "200", **settings})
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return write_certificate(tmp_path_factory.mktemp("tls"), "portolan")


@pytest.fixture(scope="module")
async def catalogue(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture(scope="module")
async def service(
    own_systems: Sequence[SystemConfig],
    redis_config: SystemConfig,
    catalogue: str,
    certificate: Certificate,
) -> AsyncIterator[Service]:
    files = {"tls_certificate": str(certificate.chain), "tls_key": str(certificate.key)}
    options = {**files, **{f"admin_{name}": file for name, file in files.items()}}
    running = Service.on(
        own_systems,
        catalogue,
        redis_config.url,
        authentication="required",
        relays="here",
        **options,
    )
    async with running.running():
        yield running


@pytest.fixture(scope="module")
async def key(catalogue: str, service: Service, certificate: Certificate) -> str:
    """A key of the operator, created in the catalogue like a first key, and known to the service.

    The service looks for new keys once a second.
    """
    command = ("key", "create", "--subject", "me", "--grant", "admin")
    code, output = await run(*command, PORTOLAN_CATALOGUE_URL=catalogue)
    assert code == 0, output
    key = str(orjson.loads(output)["key"])
    trusted = ssl.create_default_context(cafile=certificate.chain)
    async with httpx.AsyncClient(verify=trusted, headers=bearer(key), timeout=WITHIN_S) as client:

        async def is_known() -> bool:
            return (await client.get(f"{service.admin}/admin/v1/systems")).status_code == 200

        await eventually(is_known)
    return key


async def test_both_ports_accept_only_tls(service: Service, certificate: Certificate) -> None:
    for address in (service.data, service.admin):
        assert address.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate.chain)
        async with httpx.AsyncClient(verify=trusted, timeout=WITHIN_S) as trusting_client:
            assert (await trusting_client.get(f"{address}/openapi.json")).status_code < 500
        async with httpx.AsyncClient(timeout=WITHIN_S) as plain:
            with pytest.raises(httpx.RemoteProtocolError):
                await plain.get(address.replace("https://", "http://"))
        async with httpx.AsyncClient(timeout=WITHIN_S) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(address)


async def test_the_health_check_of_the_image_uses_tls(service: Service) -> None:
    port = str(urlsplit(service.admin).port)
    over_tls = {"PORTOLAN_ADMIN_PORT": port, "PORTOLAN_ADMIN_TLS_CERTIFICATE": "/a/file"}

    async def is_alive() -> bool:  # a service that does not answer for two seconds is not
        return await check_health(**over_tls) == (0, b"")

    await eventually(is_alive)
    assert await check_health(PORTOLAN_ADMIN_PORT=port) == (1, b"")


async def check_health(**settings: str) -> tuple[int | None, bytes]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.service.alive"),
        stdout=PIPE,
        stderr=STDOUT,
        env={**os.environ, **settings},
    )
    output, _ = await process.communicate()
    return process.returncode, output


async def test_the_doctor_connects_over_tls_with_a_key(
    service: Service, certificate: Certificate, key: str, tmp_path: Path
) -> None:
    (file := tmp_path / "key").write_text(f"{key}\n")
    doctor = ("doctor", "--url", service.admin)
    environment = {"SSL_CERT_FILE": str(certificate.chain)}
    code, output = await run(*doctor, "--key-file", str(file), **environment)
    assert (code, "it is ready" in output) == (0, True), output
    wrong = f"{key[:-1]}{'a' if key[-1] != 'a' else 'b'}"
    code, output = await run(*doctor, PORTOLAN_KEY=wrong, **environment)
    assert (code, "requires a key of the operator" in output) == (1, True), output
    assert key[:-1] not in output
    code, output = await run(*doctor, PORTOLAN_KEY=key)
    assert (code, "does not answer: ConnectError" in output) == (1, True), output


async def test_coherence_is_proven_over_tls(
    service: Service, certificate: Certificate, key: str
) -> None:
    """`helm test` runs this if the chart has both ports use TLS."""
    prove = ("prove-coherence", service.data, "--admin", service.admin)
    environment = {"SSL_CERT_FILE": str(certificate.chain), "PORTOLAN_KEY": key}
    code, output = await run(*prove, **environment)
    assert code == 0, output
    assert output.endswith("Proven.\n")
