"""A service restarts its embedded stores after they were killed."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from mediator.embedded.fleet import join
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.conditions import eventually
from tests.faults.service import Service
from tests.faults.stores import KINDS, Stores
from tests.process.access.examinations import remember
from tests.process.service import field_on

CLASS_OF = {"redis": "sessions", "postgres": "orders", "mongo": "notes"}


async def put(service: Service, class_name: str, id_: str) -> int:
    async with Connection(service.data) as http:
        response = await http.request("PUT", f"/v1/shop/{class_name}/{id_}", {"name": id_})
    return response.status


async def exists(service: Service, class_name: str) -> bool:
    async with Connection(service.data) as http:
        response = await http.request("GET", f"/v1/shop/{class_name}/before")
    return response.status == 200


async def is_writable(service: Service, class_name: str) -> bool:
    return await put(service, class_name, "after") in (200, 201)


async def test_killed_stores_are_restarted() -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-revival-"))
    try:
        async with Service.embedded(data_dir, "--durability", "full").running() as service:
            _, catalogue = join(data_dir)
            # Stores that tests start are like these.
            configs = [SystemConfig(name, kind, "", "full") for name, kind in KINDS.items()]
            await remember(configs, catalogue.url)
            await _kill_and_check(service, Stores(data_dir))
    finally:
        Stores(data_dir).end()
        shutil.rmtree(data_dir)


async def _kill_and_check(service: Service, stores: Stores) -> None:
    await service.favour()
    classes = {name: {"fields": {"name": field_on(s)}} for s, name in CLASS_OF.items()}
    placements = await service.put_schema("shop", classes)
    assert {placements[name] for name in CLASS_OF.values()} == set(KINDS)
    for class_name in CLASS_OF.values():
        assert await put(service, class_name, "before") == 201
    for system in KINDS:
        stores.kill(system)
    for class_name in CLASS_OF.values():
        await eventually(partial(is_writable, service, class_name))
    for class_name in CLASS_OF.values():
        await eventually(partial(exists, service, class_name))
