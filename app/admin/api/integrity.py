"""Integrity: whether systems hold what was written through Portolan, and references lead to it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from app.admin.api.responses import FieldName, Name, part
from app.http.framework import SmallBodies
from mediator.integrity.check import Integrity
from mediator.integrity.references import ReferenceCheck, Repair
from mediator.schema.ids import check_id

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MOST: Final = 1_000_000

Objects = Annotated[int, Query(ge=1, le=_MOST, description="Objects compared at most.")]


@router.post("/integrity/{database}")
async def check_integrity(
    database: Name,
    integrity: Annotated[Integrity, part("integrity", "This process compares nothing.")],
    objects: Objects = 10_000,
) -> dict[str, Any]:
    """Compare what the systems hold of a database with what the feed says of it.

    It reads all changes that the feed keeps, and up to so many objects of each class.
    """
    return (await integrity.check(database, objects)).to_json()


After = Annotated[str | None, Query(description="Only objects whose ids come after this one.")]
RepairBy = Annotated[
    Repair | None, Query(alias="repair", description="What becomes of them; nothing by default.")
]


@router.post("/integrity/{database}/{class_name}/{field}")
async def check_references(
    database: Name,
    class_name: Name,
    field: FieldName,
    reference_check: Annotated[
        ReferenceCheck, part("reference_check", "This process checks no references.")
    ],
    after: After = None,
    repair: RepairBy = None,
) -> dict[str, Any]:
    """Find references of a field to objects that do not exist.

    It works for some seconds and answers with the last id that it came to, as `next`: go on there.
    With `repair` a reference becomes null (in a list or a set it is removed), or the object that
    has it is deleted, unless others have written the object meanwhile.
    """
    begin = None if after is None else check_id(after, "after")
    report = await reference_check.check(database, class_name, field, after=begin, repair=repair)
    return report.to_json()
