"""The keys page: tenants, what they own and may use, and their keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from pydantic import ValidationError

from app.admin.api.responses import NAME, Name
from app.admin.api.tenants import KeyRequest, OwnLimits, Tenants
from app.admin.pages.page import Page, page_router, read_form, redirect, render
from app.admin.pages.series import of_tenant
from mediator.access.model import OPERATOR, Scope
from mediator.base.errors import Conflict, Invalid, Location
from mediator.control.tenancy import Tenancy

__all__ = ["PAGE"]

router = page_router()
_LIMITS: Final = tuple(OwnLimits.model_fields)
_KEY: Final = frozenset({"subject", "grants", "label", "expires"})
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}")

Chosen = Annotated[str | None, Query(pattern=NAME)]


@router.get("/keys")
async def show(request: Request, tenants: Tenants, tenant: Chosen = None) -> Response:
    return await _page(request, tenants, tenant or OPERATOR)


@router.post("/keys")
async def create_tenant(request: Request, tenants: Tenants) -> Response:
    name = (await read_form(request, frozenset({"tenant"}))).get("tenant", "")
    if not re.fullmatch(NAME, name):
        raise _invalid("tenant", "a small letter, then small letters, digits and _ are expected")
    if any(each["name"] == name for each in await tenants.tenants()):
        raise Conflict("There is a tenant of this name.")
    await tenants.put_tenant(name, {})
    return _back(name)


@router.post("/keys/{tenant}/limits")
async def set_limits(request: Request, tenants: Tenants, tenant: Name) -> Response:
    form = await read_form(request, frozenset(_LIMITS))
    await tenants.tenant(tenant)
    try:
        limits = OwnLimits.model_validate({name: text for name, text in form.items() if text})
    except ValidationError as error:
        raise _refused(error) from None
    await tenants.put_tenant(tenant, limits.model_dump(exclude_none=True))
    return _back(tenant)


@router.post("/keys/{tenant}/databases")
async def change_owner(request: Request, tenants: Tenants, tenant: Name) -> Response:
    """Make the tenant own a database, or end that."""
    form = await read_form(request, frozenset({"own", "disown"}))
    database = form.get("own") or form.get("disown", "")
    if not re.fullmatch(NAME, database):
        raise _invalid("own", "the name of a database is expected")
    await (tenants.own if form.get("own") else tenants.disown)(tenant, database)
    return _back(tenant)


@router.post("/keys/{tenant}/keys")
async def create_key(request: Request, tenants: Tenants, tenant: Name) -> Response:
    """Create a key, and show its text: in this answer only."""
    form = await read_form(request, _KEY)
    grants = form.get("grants", "").replace(",", " ").split()
    given = {**form, "grants": grants, "expires": _midnight(form.get("expires", ""))}
    try:
        wanted = KeyRequest.model_validate(given)
    except ValidationError as error:
        raise _refused(error) from None
    expires = None if wanted.expires is None else wanted.expires.timestamp()
    key = await tenants.create_key(
        tenant, wanted.subject, wanted.grants, label=wanted.label, expires=expires
    )
    return await _page(request, tenants, tenant, key)


@router.post("/keys/{tenant}/revoke")
async def revoke(request: Request, tenants: Tenants, tenant: Name) -> Response:
    id_ = (await read_form(request, frozenset({"key"}))).get("key", "")
    if not _KEY_ID.fullmatch(id_):
        raise _invalid("key", "the id of a key is expected")
    await tenants.revoke(tenant, id_)
    return _back(tenant)


@router.post("/keys/{tenant}/remove")
async def remove(tenants: Tenants, tenant: Name) -> Response:
    await tenants.remove_tenant(tenant)
    return redirect("/keys")


async def _page(
    request: Request, tenants: Tenancy, name: str, created: Mapping[str, Any] | None = None
) -> Response:
    state = request.app.state
    chosen = await tenants.tenant(name)
    return render(
        request,
        "keys.html",
        tenants=[OPERATOR, *(each["name"] for each in await tenants.tenants())],
        chosen=chosen,
        operates=name == OPERATOR,
        limits={each: OwnLimits.model_fields[each].description for each in _LIMITS},
        usage=of_tenant(state.metrics, name),
        keys=await tenants.keys(name),
        created=created,
        scopes=list(Scope),
        authenticated=state.security is not None,
    )


def _midnight(day: str) -> str | None:
    return f"{day}T00:00:00Z" if day else None


def _refused(error: ValidationError) -> Invalid:
    locations = [Location("/".join(map(str, e["loc"])), e["msg"]) for e in error.errors()[:20]]
    return Invalid("The form is not filled in as expected.", locations=locations)


def _invalid(name: str, expected: str) -> Invalid:
    return Invalid("The form is not filled in as expected.", locations=[Location(name, expected)])


def _back(tenant: str) -> Response:
    return redirect(f"/keys?tenant={tenant}")


PAGE = Page("Keys", "/keys", "Tenants, their limits, and the keys of their applications.", router)
