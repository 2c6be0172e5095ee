"""Administration of tenants, their databases and their keys, in force here immediately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mediator.access.cache import AccessCache, AccessSnapshot
from mediator.access.keys import ApiKey, mint
from mediator.access.model import MAX_SUBJECT_LENGTH, OPERATOR, Principal, is_subject, parse_grants
from mediator.base.clock import Clock
from mediator.base.errors import Invalid, Location, NotFound
from mediator.catalogue.tenants import CatalogueTenants

__all__ = ["Tenancy"]

_MAX_EXPIRY_S: Final = datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""A year before the last time that exists in every time zone."""


class Tenancy:
    def __init__(self, store: CatalogueTenants, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.cache = AccessCache(store, clock)

    async def tenants(self) -> list[dict[str, Any]]:
        snapshot = await self._refreshed()
        return [_describe(snapshot, name) for name in snapshot.tenants]

    async def tenant(self, name: str) -> dict[str, Any]:
        """Return a tenant; raises `NotFound` if there is none."""
        return _describe(await self._refreshed(), name)

    async def put_tenant(
        self, name: str, limits: Mapping[str, Any], seen: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Create a tenant, or change its limits; see `CatalogueTenants.put`."""
        await self._store.put(name, limits, seen)
        return await self.tenant(name)

    async def remove_tenant(self, name: str) -> None:
        """Remove a tenant that owns nothing, with its keys."""
        await self._store.remove(name)
        await self.cache.refresh()

    async def own(self, tenant: str, database: str) -> dict[str, Any]:
        """Assign a database to a tenant; it need not exist yet."""
        await self._store.own(tenant, database)
        return await self.tenant(tenant)

    async def disown(self, tenant: str, database: str) -> None:
        await self._store.disown(tenant, database)
        await self.cache.refresh()

    async def keys(self, tenant: str) -> list[dict[str, Any]]:
        """List the keys of a tenant, oldest first, without their secrets."""
        snapshot = await self._refreshed()
        _describe(snapshot, tenant)
        tenant_keys = [key for key in snapshot.keys.values() if key.principal.tenant == tenant]
        return [_key_document(key) for key in sorted(tenant_keys, key=lambda key: key.created)]

    async def create_key(
        self,
        tenant: str,
        subject: str,
        grants: Iterable[object],
        *,
        label: str = "",
        expires: float | None = None,
    ) -> dict[str, Any]:
        """Create a key; only this result contains its text.

        Args:
            tenant: The tenant of the key.
            subject: The subject that it authenticates.
            grants: ``scope``, ``scope:database`` or ``scope:database/class``.
            label: For its administrators.
            expires: In seconds since 1970; None: never.

        Raises:
            Invalid: A grant or the expiry is malformed.
            NotFound: There is no such tenant, or the key was revoked meanwhile.
        """
        granted = parse_grants(grants)
        if not granted:
            raise _invalid_key("/grants", "one grant at least is expected")
        if expires is not None and expires <= self._clock.now():
            raise _invalid_key("/expires", "it is in the past")
        if expires is not None and expires > _MAX_EXPIRY_S:
            raise _invalid_key("/expires", "it is after the year 9998; null means never")
        expected = f"{MAX_SUBJECT_LENGTH} characters are expected, none of control"
        if not is_subject(subject):
            raise _invalid_key("/subject", f"1 to {expected}")
        if label and not is_subject(label):
            raise _invalid_key("/label", f"up to {expected}")
        new = mint()
        await self._store.add_key(new, Principal(subject, tenant, granted), label, expires)
        stored = (await self._refreshed()).keys.get(new.id)
        if stored is None:  # it may be revoked with its tenant
            raise NotFound("The key was revoked as soon as it was created.")
        return {**_key_document(stored), "key": new.text}

    async def revoke(self, tenant: str, id_: str) -> None:
        """Raises `NotFound` if the tenant has no key of this id."""
        await self._store.revoke(tenant, id_)
        await self.cache.refresh()

    async def _refreshed(self) -> AccessSnapshot:
        await self.cache.refresh()
        return self.cache.current


def _describe(snapshot: AccessSnapshot, name: str) -> dict[str, Any]:
    if name == OPERATOR:
        return {"name": name, "databases": [], "limits": {}}
    tenant = snapshot.tenants.get(name)
    if tenant is None:
        raise NotFound("There is no such tenant.")
    return {"name": name, "databases": list(tenant.databases), "limits": dict(tenant.limits)}


def _key_document(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.principal.tenant,
        "subject": key.principal.subject,
        "grants": sorted(map(str, key.principal.grants)),
        "label": key.label,
        "created": _moment(key.created),
        "expires": None if key.expires is None else _moment(key.expires),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _invalid_key(pointer: str, detail: str) -> Invalid:
    return Invalid("The key cannot be created.", locations=[Location(pointer, detail)])
