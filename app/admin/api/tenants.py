"""Tenants, the databases they own, and their keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, Field

from app.admin.api.responses import Document, Name, component
from app.http.framework import SmallBodies
from mediator.access.model import MAX_GRANTS, MAX_SUBJECT_LENGTH
from mediator.control.tenancy import Tenancy

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

Tenants = Annotated[Tenancy, component("tenancy", "This process knows no tenants.")]
KeyId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


class OwnLimits(Document):
    """Limits of one tenant; the settings supply what is left out."""

    rate: float | None = Field(None, gt=0, le=1e6, description="Requests in a second.")
    burst: int | None = Field(None, ge=1, le=1_000_000, description="Requests after a pause.")
    in_flight: int | None = Field(None, ge=1, le=1_000_000, description="Requests under way.")
    body_bytes: int | None = Field(
        None, ge=1, le=2**40, description="Bytes of a request body, or of a line of an import."
    )
    query_rows: int | None = Field(
        None, ge=1, le=2**53, description="Records that stores may send for one query."
    )
    query_seconds: float | None = Field(None, gt=0, le=1e6, description="Time of one query.")
    rows_rate: float | None = Field(
        None, gt=0, le=1e12, description="Records in a second that stores send for its queries."
    )
    stream_seconds: float | None = Field(
        None, gt=0, le=1e9, description="Time of one import, export, feed or download."
    )
    runs: int | None = Field(None, ge=1, le=1_000_000, description="Runs that have not ended.")
    objects: int | None = Field(
        None, ge=0, le=2**53, description="Objects that its databases hold together."
    )
    priority: int | None = Field(
        None, ge=0, le=100, description="Priority of its requests, and the highest of its runs."
    )


class TenantDocument(Document):
    """The settings of a tenant."""

    limits: OwnLimits = Field(default_factory=OwnLimits)


class KeyRequest(Document):
    """A key to be created."""

    subject: str = Field(
        min_length=1,
        max_length=MAX_SUBJECT_LENGTH,
        description="The subject that it authenticates.",
    )
    grants: list[str] = Field(
        min_length=1,
        max_length=MAX_GRANTS,
        description="`scope`, `scope:database` or `scope:database/class`.",
    )
    label: str = Field("", max_length=MAX_SUBJECT_LENGTH, description="Its purpose.")
    expires: AwareDatetime | None = Field(None, description="When it expires; null: never.")


@router.get("/tenants")
async def list_tenants(tenants: Tenants) -> dict[str, Any]:
    """List the tenants with what they own."""
    return {"items": await tenants.tenants()}


@router.get("/tenants/{tenant}")
async def get_tenant(tenants: Tenants, tenant: Name) -> dict[str, Any]:
    """Describe a tenant: the databases that it owns, and its own limits."""
    return await tenants.tenant(tenant)


@router.put("/tenants/{tenant}")
async def put_tenant(tenants: Tenants, tenant: Name, document: TenantDocument) -> dict[str, Any]:
    """Create a tenant, or set its limits."""
    return await tenants.put_tenant(tenant, document.limits.model_dump(exclude_none=True))


@router.delete("/tenants/{tenant}", status_code=204)
async def remove_tenant(tenants: Tenants, tenant: Name) -> None:
    """Remove a tenant with its keys; refused (409) while it owns databases."""
    await tenants.remove_tenant(tenant)


@router.put("/tenants/{tenant}/databases/{database}")
async def own_database(tenants: Tenants, tenant: Name, database: Name) -> dict[str, Any]:
    """Make a tenant own a database, which need not exist yet; 409 if it has another owner."""
    return await tenants.own(tenant, database)


@router.delete("/tenants/{tenant}/databases/{database}", status_code=204)
async def disown_database(tenants: Tenants, tenant: Name, database: Name) -> None:
    """Take a database from a tenant; its objects stay as they are."""
    await tenants.disown(tenant, database)


@router.get("/tenants/{tenant}/keys")
async def list_keys(tenants: Tenants, tenant: Name) -> dict[str, Any]:
    """List the keys of a tenant, without their secrets."""
    return {"items": await tenants.keys(tenant)}


@router.post("/tenants/{tenant}/keys", status_code=201)
async def create_key(tenants: Tenants, tenant: Name, key_request: KeyRequest) -> dict[str, Any]:
    """Create a key; its text is in this answer, and nowhere else."""
    return await tenants.create_key(
        tenant,
        key_request.subject,
        key_request.grants,
        label=key_request.label,
        expires=None if key_request.expires is None else key_request.expires.timestamp(),
    )


@router.delete("/tenants/{tenant}/keys/{key}", status_code=204)
async def revoke_key(tenants: Tenants, tenant: Name, key: KeyId) -> None:
    """Revoke a key; replicas refuse it within about a second."""
    await tenants.revoke(tenant, key)
