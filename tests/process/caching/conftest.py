"""The origin of the tests of clients."""

from __future__ import annotations

import pytest

from tests.process.caching.coherent_origin import Origin, VirtualTime
from tests.process.caching.serving import Endpoint
from tests.process.caching.sketch_clients import OLD


@pytest.fixture
def origin(endpoint: Endpoint) -> Origin:
    server = Origin(VirtualTime())
    server.objects["articles", "a1"] = dict(OLD)
    server.endpoint = endpoint
    return server
