"""Versions of schemas that requests are pinned to: which are used, and which are retired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from app.admin.api.responses import Control, Document, DryRun, Name
from app.http.framework import SmallBodies
from app.security.admin_port import sender
from mediator.access.model import Principal
from mediator.control.former_schemas import PinnedUse

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MAX_VERSION = 2**31


class RetirementDocument(Document):
    """The versions to retire."""

    retired_before: int = Field(
        strict=True,
        ge=0,
        le=_MAX_VERSION,
        description="The lowest version that requests may pin; 0: any stored one.",
    )


@router.get("/schemas/{database}/pinned-versions")
async def get_pinned_versions(control: Control, request: Request, database: Name) -> dict[str, Any]:
    """List the versions that requests to this process were pinned to, since it started."""
    before, uses = await control.pinned_versions(database)
    return {"retired_before": before, "items": _describe(uses, sender(request))}


@router.put("/schemas/{database}/pinned-versions")
async def retire_versions(
    control: Control,
    request: Request,
    database: Name,
    document: RetirementDocument,
    dry_run: DryRun = False,
) -> dict[str, Any]:
    """Retire all versions before one: requests that are pinned to them are refused (410).

    The answer lists those that this process has served. A lower number undoes it.
    """
    before = document.retired_before
    uses = await control.retire_versions(database, before, dry_run=dry_run)
    return {"retired_before": before, "items": _describe(uses, sender(request))}


def _describe(uses: Iterable[PinnedUse], reader: Principal | None) -> list[dict[str, Any]]:
    """Describe uses; a tenant sees only its own keys."""
    tenant = None if reader is None or reader.operates else reader.tenant
    return [
        {
            "version": use.version,
            "requests": use.requests,
            "last": _time(use.last),
            "by": [
                {"tenant": sender[0], "subject": sender[1], "last": _time(last)}
                for sender, last in reversed(use.senders.items())
                if sender and tenant in (None, sender[0])
            ],
        }
        for use in uses
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
