"""Fixtures: a library on three systems, in which books refer to authors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from mediator.stores.port import SystemConfig
from tests.process.service import Service, service
from tests.process.transactions.crashable import make_crashable
from tests.process.transactions.foreign_keys.library import CLASSES


@pytest.fixture(scope="module")
async def library(mediator: Service) -> str:
    return await mediator.put_schema(CLASSES)


@pytest.fixture(scope="module")
async def replica(
    mediator: Service, system_configs: Sequence[SystemConfig]
) -> AsyncIterator[Service]:
    """A second replica of the installation of `mediator`."""
    async with service(system_configs, mediator.catalogue_url) as instance:
        yield instance


@pytest.fixture
def crashable(mediator: Service) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        make_crashable(mediator.mediator, patched)
        yield
