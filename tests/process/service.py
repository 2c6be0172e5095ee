"""A mediator over the three real servers of the test run, in its own namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import asyncpg
from pymongo import AsyncMongoClient
from redis.asyncio import Redis
from sqlalchemy import make_url, update

from mediator.base.clock import SystemClock
from mediator.base.errors import MediatorError
from mediator.base.observation import Observation
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import installation
from mediator.control.port import SystemRegistration
from mediator.model.operations import Create, Get, Outcome, Update, WriteOperation
from mediator.model.operators import Operator, OperatorCall
from mediator.options import MediatorOptions
from mediator.schema.types import Values
from mediator.service import Mediator
from mediator.stores.kinds import make_store
from mediator.stores.port import Store, SystemConfig
from tests.process.access.examinations import recall, remember

__all__ = [
    "NOWHERE",
    "Service",
    "drop_catalogue_template",
    "error_of",
    "field_on",
    "inc",
    "scratch_catalogue",
    "scratch_database",
    "scratch_systems",
    "service",
    "unique",
]

_TEMPLATES: dict[str, str] = {}
"""The name of the template database on each server."""

NOWHERE = "redis://:hush-hush@127.0.0.1:1/0"
"""A URL where no server listens; its password must not appear anywhere."""


def unique(prefix: str = "t") -> str:
    """Return a unique name."""
    return f"{prefix}_{uuid4().hex[:12]}"


def field_on(system: str, type_: str = "string", **members: Any) -> dict[str, Any]:
    """Return a field that the stated metrics of `Service.favour` place on a system."""
    metric = {"redis": "write_throughput", "postgres": "read_latency", "mongo": "read_throughput"}
    return {
        "type": type_,
        "annotations": [{"metric": metric[system], "goal": 1000}],
        **members,
    }


@dataclass
class Service:
    """A mediator with its observations, and short names for operations."""

    mediator: Mediator
    configs: dict[str, SystemConfig]
    catalogue_url: str
    observed: list[Observation] = field(default_factory=list)

    async def favour(self) -> None:
        """State metrics with which `field_on` decides the placement of a field."""
        control = self.mediator.control
        worst = {"write_throughput": 1.0, "read_latency": 1000.0, "read_throughput": 1.0}
        best = {"write_throughput": 1e6, "read_latency": 1e-6, "read_throughput": 1e6}
        metrics = {
            "redis": "write_throughput",
            "postgres": "read_latency",
            "mongo": "read_throughput",
        }
        for name, metric in metrics.items():
            await control.amend(name, metrics={**worst, metric: best[metric]})

    async def put_schema(self, classes: dict[str, Any], **members: Any) -> str:
        """Set a schema under a unique name; return the name."""
        database = unique("db")
        await self.mediator.control.set_schema(database, {"classes": classes, **members})
        return database

    async def create(self, database: str, class_name: str, id_: str, **values: Any) -> Outcome:
        operation = Create(database, class_name, id_, unique("op"), values=values)
        return await self.mediator.data.write(operation)

    async def get(
        self, database: str, class_name: str, id_: str, fields: tuple[str, ...] | None = None
    ) -> Outcome:
        return await self.mediator.data.read(Get(database, class_name, id_, fields))

    async def values(self, database: str, class_name: str, id_: str) -> Values | None:
        return (await self.get(database, class_name, id_)).values

    def systems_of(self, database: str, class_name: str) -> tuple[str, ...]:
        route = self.mediator.data.model.databases[database].classes[class_name]
        return tuple(fragment.system for fragment in route.fragments)


async def error_of(of: Service, operation: WriteOperation) -> MediatorError | None:
    """Write; return the error if it was refused."""
    try:
        await of.mediator.data.write(operation)
    except MediatorError as error:
        return error
    return None


def inc(
    database: str, class_name: str, id_: str, field_name: str = "hits", **members: Any
) -> Update:
    """Return an increment by one."""
    operation = members.pop("operation", None) or unique("op")
    operators = (OperatorCall(field_name, Operator.INC, 1),)
    return Update(database, class_name, id_, operation, operators=operators, **members)


@asynccontextmanager
async def service(
    configs: Sequence[SystemConfig],
    catalogue_url: str,
    *,
    coordination_url: str | None = None,
    factory: Callable[[SystemConfig], Store] = make_store,
    **options: Any,
) -> AsyncIterator[Service]:
    """Run a mediator on systems, with a catalogue; data stays in their namespaces."""
    observed: list[Observation] = []
    mediator_options = MediatorOptions(
        catalogue_url=catalogue_url,
        coordination_url=coordination_url,
        systems=[SystemRegistration(config) for config in configs],
        **{"clock": SystemClock(), **options},
    )
    mediator = Mediator(mediator_options, factory, [observed.append])
    is_real = factory is make_store
    if is_real:
        await recall(configs, catalogue_url)
    await mediator.start()
    try:
        if is_real:
            await remember(configs, catalogue_url)
        yield Service(mediator, {c.name: c for c in configs}, catalogue_url, observed)
    finally:
        await mediator.stop()


@asynccontextmanager
async def scratch_catalogue(config: SystemConfig) -> AsyncIterator[str]:
    """Create an empty catalogue on a server; drop it at the end."""
    async with scratch_database(config, await _catalogue_template(config)) as url:
        yield url


@asynccontextmanager
async def scratch_database(config: SystemConfig, template: str = "template1") -> AsyncIterator[str]:
    """Create a PostgreSQL database, empty or from a template; drop it at the end."""
    name = unique("catalogue")
    await _execute(config.url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield _url_of(config, name)
    finally:
        await _execute(config.url, f"DROP DATABASE {name} WITH (FORCE)")


async def _catalogue_template(config: SystemConfig) -> str:
    """Return a database with the catalogue's tables; copying is faster than creating them."""
    if config.url not in _TEMPLATES:
        name = unique("template")
        await _execute(config.url, f"CREATE DATABASE {name}")
        catalogue = Catalogue(_url_of(config, name))
        await catalogue.open()
        # Its copies are one installation: tests and other runs share a coordination Redis.
        await catalogue.execute(update(installation).values(id="tests"))
        await catalogue.close()
        _TEMPLATES[config.url] = name
    return _TEMPLATES[config.url]


async def drop_catalogue_template(config: SystemConfig) -> None:
    """Drop the template database that `scratch_catalogue` left on a server."""
    if name := _TEMPLATES.pop(config.url, None):
        await _execute(config.url, f"DROP DATABASE {name}")


def _url_of(config: SystemConfig, database: str) -> str:
    return make_url(config.url).set(database=database).render_as_string(hide_password=False)


@asynccontextmanager
async def scratch_systems(*configs: SystemConfig) -> AsyncIterator[list[SystemConfig]]:
    """Yield the systems in a new namespace, which is cleaned at the end."""
    namespace = unique("ns")
    try:
        yield [replace(config, namespace=namespace) for config in configs]
    finally:
        for config in configs:
            await _CLEANERS[config.kind](config.url, namespace)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _clean_redis(url: str, namespace: str) -> None:
    async with Redis.from_url(url) as client:
        keys = [key async for key in client.scan_iter(match=f"*{namespace}*", count=1000)]
        if keys:
            await client.delete(*keys)


async def _clean_postgresql(url: str, namespace: str) -> None:
    await _execute(url, f"DROP SCHEMA IF EXISTS {namespace} CASCADE")


async def _clean_mongodb(url: str, namespace: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        for name in await client.list_database_names():
            if name.startswith(namespace):
                await client.drop_database(name)


_CLEANERS = {
    "redis": _clean_redis,
    "postgresql": _clean_postgresql,
    "mongodb": _clean_mongodb,
}
