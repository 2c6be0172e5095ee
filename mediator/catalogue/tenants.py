"""Tenants, their databases and keys. Every change raises one version, which replicas watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from mediator.access.cache import AccessSnapshot, Tenant
from mediator.access.keys import ApiKey, NewKey
from mediator.access.model import OPERATOR, Principal, parse_grants
from mediator.base.errors import AlreadyExists, Conflict, NotFound
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.tables import access, api_keys, tenant_databases, tenants

__all__ = ["MAX_KEYS", "MAX_KEYS_OF_TENANT", "CatalogueTenants", "raise_version"]

MAX_KEYS: Final = 10_000
"""Keys of all tenants but the operator's: replicas hold all of them in memory."""

MAX_KEYS_OF_TENANT: Final = 1_000
"""Keys of one tenant, so that none exhausts the limit for all."""


class CatalogueTenants:
    """Reads and changes tenants and keys; implements `mediator.access.cache.AccessSource`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def version(self) -> int:
        result = await self._catalogue.execute(select(access.c.version))
        return int(result.scalar_one_or_none() or 0)

    async def snapshot(self) -> AccessSnapshot:
        async with self._catalogue.begin() as connection:
            # The share lock keeps a change from coming between the reads.
            version_query = select(access.c.version).with_for_update(read=True)
            version = int((await connection.execute(version_query)).scalar_one_or_none() or 0)
            owner_query = select(tenant_databases).order_by(tenant_databases.c.database)
            owners = {row.database: row.tenant for row in await connection.execute(owner_query)}
            rows = await connection.execute(select(tenants).order_by(tenants.c.name))
            tenants_by_name = {row.name: _tenant(row, owners) for row in rows}
            keys = {row.id: _key(row) for row in await connection.execute(select(api_keys))}
        return AccessSnapshot(version, tenants_by_name, keys, owners)

    async def put(
        self, name: str, limits: Mapping[str, Any], seen: Mapping[str, Any] | None = None
    ) -> None:
        """Create a tenant, or change its limits.

        Args:
            name: Of the tenant.
            limits: Its new limits.
            seen: The limits that the change is based on; None: no check, and it may be new.

        Raises:
            Conflict: It is the operator's tenant, or its limits differ from those seen.
            NotFound: It was removed since its limits were seen.
        """
        if name == OPERATOR:
            raise Conflict("The operator's tenant always exists, and has no limits.")
        values = {"limits": dict(limits)}
        new = insert(tenants).values(name=name, **values)
        row = new.on_conflict_do_update(index_elements=["name"], set_=values)
        async with self._change() as connection:
            if seen is not None:
                await _expect_limits(connection, name, seen)
            await connection.execute(row)

    async def remove(self, name: str) -> None:
        """Remove a tenant with its keys; `NotFound`, or `Conflict` if it owns databases."""
        async with self._change() as connection:
            query = select(func.count()).where(tenant_databases.c.tenant == name)
            if (await connection.execute(query)).scalar_one():
                raise Conflict(f"The tenant {name} owns databases; take them from it first.")
            await connection.execute(delete(api_keys).where(api_keys.c.tenant == name))
            result = await connection.execute(delete(tenants).where(tenants.c.name == name))
            if not result.rowcount:
                raise NotFound("There is no such tenant.")

    async def own(self, tenant: str, database: str) -> None:
        """Raise `NotFound` if there is no such tenant, `AlreadyExists` if another owns it."""
        async with self._change() as connection:
            await _expect(connection, tenant)
            row = insert(tenant_databases).values(database=database, tenant=tenant)
            await connection.execute(row.on_conflict_do_nothing())
            query = select(tenant_databases.c.tenant).where(tenant_databases.c.database == database)
            # The insert has no effect if the database has an owner: the row decides.
            if (await connection.execute(query)).scalar_one() != tenant:
                raise AlreadyExists(f"Another tenant owns the database {database}.")

    async def disown(self, tenant: str, database: str) -> None:
        """Take a database from a tenant; its objects stay. Raises `NotFound`."""
        deletion = delete(tenant_databases).where(
            tenant_databases.c.tenant == tenant, tenant_databases.c.database == database
        )
        async with self._change() as connection:
            if not (await connection.execute(deletion)).rowcount:
                raise NotFound("The tenant does not own such a database.")

    async def add_key(
        self, new: NewKey, principal: Principal, label: str, expires: float | None
    ) -> None:
        """Raise `NotFound`, or `Conflict` if the tenant or the installation has too many keys."""
        row = insert(api_keys).values(
            id=new.id,
            tenant=principal.tenant,
            subject=principal.subject,
            digest=new.digest,
            grants=sorted(map(str, principal.grants)),
            label=label,
            expires=None if expires is None else datetime.fromtimestamp(expires, UTC),
        )
        async with self._change() as connection:
            await _expect(connection, principal.tenant)
            await _expect_room(connection, principal.tenant)
            await connection.execute(row)

    async def revoke(self, tenant: str, id_: str) -> None:
        deletion = delete(api_keys).where(api_keys.c.tenant == tenant, api_keys.c.id == id_)
        async with self._change() as connection:
            if not (await connection.execute(deletion)).rowcount:
                raise NotFound("The tenant has no such key.")

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[AsyncConnection]:
        async with self._catalogue.begin() as connection:
            # First: its row lock serialises changes, so what they check stays true.
            await connection.execute(raise_version())
            yield connection


def raise_version() -> Insert:
    """Return the statement that raises the version, so that replicas read again."""
    increment = insert(access).values(only=1, version=1)
    return increment.on_conflict_do_update(
        index_elements=[access.c.only], set_={"version": access.c.version + 1}
    )


async def _expect(connection: AsyncConnection, tenant: str) -> None:
    query = select(tenants.c.name).where(tenants.c.name == tenant)
    if tenant != OPERATOR and (await connection.execute(query)).first() is None:
        raise NotFound("There is no such tenant.")


async def _expect_limits(connection: AsyncConnection, tenant: str, seen: Mapping[str, Any]) -> None:
    await _expect(connection, tenant)
    query = select(tenants.c.limits).where(tenants.c.name == tenant)
    present = (await connection.execute(query)).scalar_one()
    if present != seen:
        raise Conflict("The limits were changed since they were shown.", extra={"limits": present})


async def _expect_room(connection: AsyncConnection, tenant: str) -> None:
    """Return if a tenant can have one more key; tenants cannot exhaust the operator's share."""
    own_keys = func.count().filter(api_keys.c.tenant == tenant)
    tenant_keys = func.count().filter(api_keys.c.tenant != OPERATOR)
    owned, total = (
        await connection.execute(select(own_keys, tenant_keys).select_from(api_keys))
    ).one()
    if owned >= MAX_KEYS_OF_TENANT:
        raise Conflict(f"The tenant has {owned} keys, the maximum; revoke some first.")
    if tenant != OPERATOR and total >= MAX_KEYS:
        raise Conflict(f"There are {total} keys, the maximum; revoke some first.")


def _tenant(row: Row[Any], owners: Mapping[str, str]) -> Tenant:
    owned = tuple(database for database, owner in owners.items() if owner == row.name)
    return Tenant(row.name, owned, row.limits)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.id,
        row.digest,
        Principal(row.subject, row.tenant, parse_grants(row.grants)),
        row.created.timestamp(),
        None if row.expires is None else row.expires.timestamp(),
        row.label,
    )
