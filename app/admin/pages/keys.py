"""The keys page: tenants, what they own and may use, and their keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request, Response

from app.admin.api.responses import NAME, Name
from app.admin.api.tenants import KeyRequest, OwnLimits, Tenants
from app.admin.pages.forms import not_expected, read_form, read_model, read_name
from app.admin.pages.page import Page, page_router, redirect, render
from app.admin.pages.series import of_tenant
from app.http.problems import problem_of
from mediator.access.model import OPERATOR, Scope
from mediator.base.errors import Conflict, MediatorError
from mediator.control.tenancy import Tenancy

__all__ = ["PAGE"]

router = page_router()
_LIMITS: Final = tuple(OwnLimits.model_fields)
_KEY: Final = frozenset({"subject", "grants", "label", "expires"})
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}")

TenantName = Annotated[str | None, Query(pattern=NAME)]


@router.get("/keys")
async def show(request: Request, tenants: Tenants, tenant: TenantName = None) -> Response:
    return await _page(request, tenants, tenant or OPERATOR)


@router.post("/keys")
async def create_tenant(request: Request, tenants: Tenants) -> Response:
    name = read_name(await read_form(request, frozenset({"tenant"})), "tenant")
    if any(existing["name"] == name for existing in await tenants.tenants()):
        raise Conflict("There is a tenant of this name.")
    await tenants.put_tenant(name, {})
    return _back(name)


@router.post("/keys/{tenant}/limits")
async def set_limits(request: Request, tenants: Tenants, tenant: Name) -> Response:
    """Set the typed limits, unless the limits have changed since they were shown."""
    form = await read_form(request, frozenset({*_LIMITS, "seen"}))
    try:
        await tenants.put_tenant(tenant, _limits(form), _seen(form))
    except MediatorError as error:
        return await _page(request, tenants, tenant, form=form, refusal=error)
    return _back(tenant)


@router.post("/keys/{tenant}/databases")
async def change_owner(request: Request, tenants: Tenants, tenant: Name) -> Response:
    """Give a database to the tenant, or take it away."""
    form = await read_form(request, frozenset({"own", "disown"}))
    if "disown" in form:
        await tenants.disown(tenant, read_name(form, "disown"))
    else:
        await tenants.own(tenant, read_name(form, "own"))
    return _back(tenant)


@router.post("/keys/{tenant}/keys")
async def create_key(request: Request, tenants: Tenants, tenant: Name) -> Response:
    """Create a key, and show its text: in this answer only."""
    form = await read_form(request, _KEY)
    grants = form.get("grants", "").replace(",", " ").split()
    fields = {**form, "grants": grants, "expires": _midnight(form.get("expires", ""))}
    key_request = read_model(KeyRequest, fields)
    expires = None if key_request.expires is None else key_request.expires.timestamp()
    key = await tenants.create_key(
        tenant, key_request.subject, key_request.grants, label=key_request.label, expires=expires
    )
    return await _page(request, tenants, tenant, key)


@router.post("/keys/{tenant}/revoke")
async def revoke(request: Request, tenants: Tenants, tenant: Name) -> Response:
    id_ = (await read_form(request, frozenset({"key"}))).get("key", "")
    if not _KEY_ID.fullmatch(id_):
        raise not_expected("key", "the id of a key")
    await tenants.revoke(tenant, id_)
    return _back(tenant)


@router.post("/keys/{tenant}/remove")
async def remove(tenants: Tenants, tenant: Name) -> Response:
    await tenants.remove_tenant(tenant)
    return redirect("/keys")


async def _page(
    request: Request,
    tenants: Tenancy,
    name: str,
    created: Mapping[str, Any] | None = None,
    *,
    form: Mapping[str, str] | None = None,
    refusal: MediatorError | None = None,
) -> Response:
    """Show a tenant; after a refusal, with the typed limits and those that they were to replace."""
    state = request.app.state
    chosen = await tenants.tenant(name)
    problem = None if refusal is None else problem_of(refusal).document()
    return render(
        request,
        "keys.html",
        200 if problem is None else problem["status"],
        problem=problem,
        typed=chosen["limits"] if form is None else form,
        seen=orjson.dumps(chosen["limits"]).decode() if form is None else form.get("seen", ""),
        tenants=[OPERATOR, *(tenant["name"] for tenant in await tenants.tenants())],
        chosen=chosen,
        operates=name == OPERATOR,
        limits={limit: OwnLimits.model_fields[limit].description for limit in _LIMITS},
        usage=of_tenant(state.metrics, name),
        keys=await tenants.keys(name),
        created=created,
        scopes=list(Scope),
        authenticated=state.security is not None,
    )


def _limits(form: Mapping[str, str]) -> dict[str, Any]:
    fields = {name: text for name, text in form.items() if name in _LIMITS and text}
    return read_model(OwnLimits, fields).model_dump(exclude_none=True)


def _seen(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits that were shown; without them, none are set."""
    try:
        seen = orjson.loads(form.get("seen", ""))
    except orjson.JSONDecodeError:
        seen = None
    if not isinstance(seen, dict):
        raise not_expected("seen", "the limits that were shown")
    return seen


def _midnight(day: str) -> str | None:
    return f"{day}T00:00:00Z" if day else None


def _back(tenant: str) -> Response:
    return redirect(f"/keys?tenant={tenant}")


PAGE = Page("Keys", "/keys", "Tenants, their limits, and the keys of their applications.", router)
