"""A mediator over the servers of the test run, in namespaces that are removed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from app.settings.main import CacheSettings
from mediator.stores.port import SystemConfig
from tests.faults.service import Service as ServiceProcess
from tests.process.caching.cached_paper import Paper, paper_on
from tests.process.caching.guarded import Guarded, guarded
from tests.process.caching.serving import Endpoint, served
from tests.process.service import Service, scratch_catalogue, scratch_systems, service


@pytest.fixture(scope="session")
async def system_configs(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Sequence[SystemConfig]]:
    """The three systems, in a new namespace."""
    async with scratch_systems(redis_config, postgresql_config, mongodb_config) as configs:
        yield configs


@pytest.fixture(scope="session")
async def catalogue_url(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    """The URL of an empty catalogue."""
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture(scope="session")
async def mediator(
    system_configs: Sequence[SystemConfig], catalogue_url: str
) -> AsyncIterator[Service]:
    """A running mediator whose stated metrics place each `field_on` on its system."""
    async with service(system_configs, catalogue_url) as running_service:
        await running_service.favour()
        yield running_service


@pytest.fixture(scope="module")
def late_replies() -> Iterator[None]:
    """Wait longer for replies of the coordination Redis, for a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redis_connection.connection.TIMEOUT_S", 30.0)
        yield


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make writers wait longer: on a busy machine, earlier writers can take long."""
    for name in (
        "operations.backoff.MAX_WAIT_S",
        "transactions.coordinator.MAX_WAIT_S",
        "transactions.foreign_keys.MAX_WAIT_S",
        "transactions.joint.LOCK_TIMEOUT_S",
        "transactions.joint.MAX_WAIT_S",
    ):
        monkeypatch.setattr(f"mediator.{name}", 60.0)


@pytest.fixture(scope="module")
async def own_systems(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[Sequence[SystemConfig]]:
    """The three systems, in a namespace of this module.

    A relay relays all changes of a namespace, those of other tests as well.
    """
    async with scratch_systems(redis_config, postgresql_config, mongodb_config) as configs:
        yield configs


@pytest.fixture(scope="module")
async def own_catalogue(postgresql_config: SystemConfig) -> AsyncIterator[str]:
    """The URL of a catalogue of this module."""
    async with scratch_catalogue(postgresql_config) as url:
        yield url


@pytest.fixture(scope="module")
async def paper(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Paper]:
    """Cacheable articles, with their own sketch."""
    async with paper_on(own_systems, own_catalogue, redis_config.url, CacheSettings()) as paper_:
        yield paper_


@pytest.fixture(scope="module")
async def other(
    paper: Paper,
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
) -> AsyncIterator[Paper]:
    """A second replica of the service behind `paper`."""
    settings = CacheSettings()
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings, paper) as replica:
        yield replica


@pytest.fixture(scope="module")
async def running(
    redis_config: SystemConfig,
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    """An installation that requires keys."""
    jobs: Path = tmp_path_factory.mktemp("jobs")
    async with guarded(own_systems[:2], own_catalogue, redis_config.url, jobs) as running:
        yield running


@pytest.fixture(scope="module")
async def endpoint() -> AsyncIterator[Endpoint]:
    """One address for the origins of a module's tests and the caches before them."""
    endpoint = Endpoint()
    async with served(endpoint) as endpoint.url:
        yield endpoint


@pytest.fixture(scope="module")
async def started(
    redis_config: SystemConfig, postgresql_config: SystemConfig, mongodb_config: SystemConfig
) -> AsyncIterator[ServiceProcess]:
    """A service in a separate process, with a feed."""
    async with (
        scratch_systems(redis_config, postgresql_config, mongodb_config) as configs,
        scratch_catalogue(postgresql_config) as url,
        ServiceProcess.on(
            configs, url, redis_config.url, sketch="off", relays="here"
        ).running() as service,
    ):
        await service.favour()
        yield service
