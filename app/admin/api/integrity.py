"""Integrity: compares stored objects with the change feed, and checks references."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from app.admin.api.responses import FieldName, Name, component
from app.http.framework import SmallBodies
from mediator.integrity.check import Integrity
from mediator.integrity.references import ReferenceCheck, Repair
from mediator.schema.ids import check_id

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MAX_OBJECTS: Final = 1_000_000

Objects = Annotated[int, Query(ge=1, le=_MAX_OBJECTS, description="Maximum objects compared.")]


@router.post("/integrity/{database}")
async def check_integrity(
    database: Name,
    integrity: Annotated[Integrity, component("integrity", "This process compares nothing.")],
    objects: Objects = 10_000,
) -> dict[str, Any]:
    """Compare the stored objects of a database with its change feed.

    It reads all changes that the feed retains, and up to `objects` objects of each class.
    """
    return (await integrity.check(database, objects)).to_json()


After = Annotated[str | None, Query(description="Only objects with ids after this one.")]
RepairBy = Annotated[
    Repair | None, Query(alias="repair", description="How to repair them; by default not at all.")
]


@router.post("/integrity/{database}/{class_name}/{field}")
async def check_references(
    database: Name,
    class_name: Name,
    field: FieldName,
    reference_check: Annotated[
        ReferenceCheck, component("reference_check", "This process checks no references.")
    ],
    after: After = None,
    repair: RepairBy = None,
) -> dict[str, Any]:
    """Find references of a field to objects that do not exist.

    It works for some seconds and returns the last id that it reached as `next`: continue there.
    With `repair` a reference becomes null (in a list or a set it is removed), or its object is
    deleted, unless the object was written meanwhile.
    """
    after_id = None if after is None else check_id(after, "after")
    report = await reference_check.check(database, class_name, field, after=after_id, repair=repair)
    return report.to_json()
