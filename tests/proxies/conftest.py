"""An origin, and a Varnish and an nginx before it; each test has its own targets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count

import httpx
import pytest

from benchmarks.harness.varnish import Varnish, varnish
from tests.proxies.nginx import Nginx, nginx
from tests.proxies.small_origin import Origin, small_origin

_NUMBERS = count(1)


@pytest.fixture(scope="session")
async def origin_of_all() -> AsyncIterator[Origin]:
    async with small_origin() as started:
        yield started


@pytest.fixture
def origin(origin_of_all: Origin) -> Iterator[Origin]:
    """An origin that follows the contract, until the test changes that."""
    origin_of_all.reset()
    yield origin_of_all
    origin_of_all.reset()


@pytest.fixture
def path() -> str:
    """A target that no other test uses."""
    return f"/v1/news/articles/a{next(_NUMBERS)}"


@pytest.fixture(scope="session")
async def varnish_cache(origin_of_all: Origin) -> AsyncIterator[Varnish]:
    async with varnish(origin_of_all.url) as started:
        yield started


@pytest.fixture(scope="session")
async def nginx_cache(origin_of_all: Origin) -> AsyncIterator[Nginx]:
    async with nginx(origin_of_all.url) as started:
        yield started


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A client without a cache."""
    async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
        yield client
