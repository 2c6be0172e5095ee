"""Embedded stores that were killed are restarted by the service that runs them."""

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
        answer = await http.request("PUT", f"/v1/shop/{class_name}/{id_}", {"name": id_})
    return answer.status


async def is_there(service: Service, class_name: str) -> bool:
    async with Connection(service.data) as http:
        answer = await http.request("GET", f"/v1/shop/{class_name}/before")
    return answer.status == 200


async def works(service: Service, class_name: str) -> bool:
    return await put(service, class_name, "after") in (200, 201)


async def test_killed_stores_are_restarted() -> None:
    data_dir = Path(tempfile.mkdtemp(prefix="portolan-revival-"))
    try:
        async with Service.embedded(data_dir, "--durability", "full").running() as service:
            _, catalogue = join(data_dir)
            # Stores of tests' own are like these.
            own = [SystemConfig(name, kind, "", "full") for name, kind in KINDS.items()]
            await remember(own, catalogue.url)
            await _survive(service, Stores(data_dir))
    finally:
        Stores(data_dir).end()
        shutil.rmtree(data_dir)


async def _survive(service: Service, stores: Stores) -> None:
    await service.favour()
    classes = {name: {"fields": {"name": field_on(s)}} for s, name in CLASS_OF.items()}
    placed = await service.put_schema("shop", classes)
    assert {placed[name] for name in CLASS_OF.values()} == set(KINDS)
    for class_name in CLASS_OF.values():
        assert await put(service, class_name, "before") == 201
    for system in KINDS:
        stores.kill(system)
    for class_name in CLASS_OF.values():
        await eventually(partial(works, service, class_name))
    for class_name in CLASS_OF.values():
        await eventually(partial(is_there, service, class_name))
