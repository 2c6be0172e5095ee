"""The origin of the tests of clients."""

from __future__ import annotations

import pytest

from tests.process.caching.coherent_origin import Origin, VirtualTime
from tests.process.caching.serving import Door
from tests.process.caching.sketch_clients import OLD


@pytest.fixture
def origin(door: Door) -> Origin:
    place = Origin(VirtualTime())
    place.objects["articles", "a1"] = dict(OLD)
    place.door = door
    return place
