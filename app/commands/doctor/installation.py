"""Findings about the machine: Python, Spark, embedded servers, databases and certificates."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.service.tls import Certificate, certificates
from app.settings.known import unknown_settings
from app.settings.main import (
    HttpSettings,
    JobSettings,
    MediatorSettings,
    MissingSetting,
    SystemSettings,
)
from mediator.base.errors import Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import installation_id_if_any
from mediator.coordination.binding import REMEDY, InstallationBinding
from mediator.coordination.connecting import connect
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import EmbeddedStartError, ServerUnavailable
from mediator.stores.kinds import make_store
from mediator.stores.port import StoreError
from spark_jobs.gpu import GpuUnavailable, is_here, look_for_gpu
from spark_jobs.session import SparkUnavailable, look_for_spark

__all__ = ["Finding", "examine", "examine_databases", "examine_environment", "examine_tls"]

MIN_PYTHON = (3, 11)
_SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: whether a thing is there and works, and the remedy if not.

    Attributes:
        fatal: Whether the service cannot run without it.
    """

    what: str
    found: bool
    detail: str
    remedy: str = ""
    fatal: bool = False


def examine(settings: MediatorSettings, *, embedded: bool) -> list[Finding]:
    """Check the interpreter, Spark, and the databases that the settings name.

    The embedded servers are checked on request, or if the settings name no catalogue: an image
    without them can serve external databases.
    """
    findings = [_python(), *_jobs()]
    external = not embedded and settings.catalogue_url is not None
    if not external:
        findings[1:1] = _embedded()
    if not embedded:
        findings += asyncio.run(examine_databases(settings))
    return findings


def examine_tls(http: HttpSettings) -> list[Finding]:
    try:
        return [_certificate(certificate) for certificate in certificates(http).values()]
    except MissingSetting as error:
        return [Finding("TLS", False, str(error), fatal=True)]


def examine_environment() -> list[Finding]:
    return [Finding("setting", False, warning) for warning in unknown_settings(os.environ)]


def _certificate(certificate: Certificate) -> Finding:
    subject = f"TLS of the {certificate.port} port"
    try:
        expiry = certificate.check()
    except MissingSetting as error:
        return Finding(
            subject, False, str(error), "Nothing is served until it can be used.", fatal=True
        )
    remaining = expiry - datetime.now(UTC)
    if remaining <= timedelta(0):
        return Finding(subject, False, f"the certificate ended at {expiry}", "Renew it.")
    remedy = "Renew it soon." if remaining < _SOON else ""
    return Finding(subject, True, f"until {expiry}, {remaining.days} days from now", remedy)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    is_supported = sys.version_info >= MIN_PYTHON
    remedy = "" if is_supported else "Install Python 3.11 or newer."
    return Finding("Python", is_supported, version, remedy, fatal=not is_supported)


def _embedded() -> list[Finding]:
    """Start the embedded servers in a scratch directory: a server that starts here, runs here."""
    with tempfile.TemporaryDirectory(prefix="portolan-doctor-") as scratch:
        try:
            with EmbeddedFleet(Path(scratch)) as fleet:
                findings = [
                    Finding(f"embedded {kind}", True, f"{endpoint.server} {endpoint.version}")
                    for kind, endpoint in fleet.endpoints.items()
                ]
                return findings + [_missing(server) for server in fleet.unavailable]
        except EmbeddedStartError as error:
            return [Finding("embedded servers", False, str(error), fatal=True)]


def _missing(server: ServerUnavailable) -> Finding:
    fatal = server.kind != "mongodb"  # the service runs without it, and says so
    return Finding(f"embedded {server.kind}", False, server.reason, server.remedy, fatal)


def _jobs() -> list[Finding]:
    spark = _spark()
    return [spark, *examine_gpu()] if spark.found else [spark]


def _spark() -> Finding:
    try:
        return Finding("Spark", True, look_for_spark(JobSettings().spark_options()))
    except SparkUnavailable as error:
        remedy = f"{error.remedy.capitalize()}. Only jobs need it."
        return Finding("Spark", False, error.reason, remedy)


def examine_gpu() -> list[Finding]:
    jobs = JobSettings()
    if jobs.gpu == "never" or not is_here(jobs.spark):
        return []
    try:
        return [Finding("GPU", True, look_for_gpu())]
    except GpuUnavailable as error:
        use = "Private linkage is slower without, and finds the same."
        if jobs.gpu == "always":
            use = "Workers do not start without: PORTOLAN_GPU is always."
        remedy = f"{error.remedy[0].upper()}{error.remedy[1:]}. {use}"
        return [Finding("GPU", False, error.reason, remedy)]


async def examine_databases(settings: MediatorSettings) -> list[Finding]:
    systems = [await _system(system) for system in settings.systems]
    return [*await _shared(settings), *systems]


async def _shared(settings: MediatorSettings) -> list[Finding]:
    """Check the databases that replicas share: the catalogue, and the coordination Redis."""
    if settings.catalogue_url is None:
        remedy = "Set PORTOLAN_CATALOGUE_URL to a PostgreSQL database, or serve --embedded."
        return [Finding("catalogue", False, "no URL is set", remedy)]
    catalogue = Catalogue(settings.catalogue_url.get_secret_value())
    try:
        installation = await installation_id_if_any(catalogue)
    except Unavailable as error:
        remedy = "Check the URL, and that the server accepts connections from here."
        return [Finding("catalogue", False, error.detail, remedy, fatal=True)]
    finally:
        await catalogue.close()
    findings = [Finding("catalogue", True, "it answers")]
    if settings.coordination_url is not None:
        url = settings.coordination_url.get_secret_value()
        findings.append(await _coordination(url, installation))
    return findings


async def _coordination(url: str, installation: str | None) -> Finding:
    """Check the binding of the Redis; `installation` is None before the first start."""
    subject, redis = "coordination Redis", connect(url)
    try:
        bound_installation = await InstallationBinding(redis).installation()
    except Unavailable as error:
        remedy = "Check PORTOLAN_COORDINATION_URL, and that the server accepts connections."
        return Finding(subject, False, error.detail, remedy)
    finally:
        await redis.aclose()
    if bound_installation in (None, installation):
        return Finding(subject, True, "it answers")
    return Finding(
        subject,
        False,
        f"it is bound to another installation, {bound_installation}",
        REMEDY,
        fatal=True,
    )


async def _system(settings: SystemSettings) -> Finding:
    store = make_store(settings.registration().config)
    subject = f"system {settings.name} ({settings.kind})"
    try:
        await store.open()
        facts = await store.facts()
    except StoreError as error:
        remedy = "Check its URL, and that the server accepts connections from here."
        return Finding(subject, False, str(error), remedy)
    finally:
        await store.close()
    return Finding(subject, True, f"{facts.server} {facts.version}")
