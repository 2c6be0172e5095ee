"""References to objects that do not exist: looked up page by page, in bulk."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mediator.base.errors import MediatorError, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Get, Outcome

__all__ = ["missing_targets", "references_in"]


def references_in(page: Iterable[Outcome], field: str) -> dict[str, None]:
    """Return the ids to which a field of some objects refers, or its items; each once."""
    values = ((outcome.values or {}).get(field) for outcome in page)
    return dict.fromkeys(id_ for value in values for id_ in references_of(value))


def references_of(value: object) -> list[str]:
    """Return the ids in the value of a reference, or of a list or set of references."""
    if isinstance(value, str):
        return [value]
    items = value if isinstance(value, list | tuple | set | frozenset) else ()
    return [item for item in items if isinstance(item, str)]


async def missing_targets(
    plane: DataPlane, database: str, class_name: str, ids: Collection[str]
) -> set[str]:
    """Return those of some ids of which a class has no object.

    Raises:
        MediatorError: A system does not answer, or the class is gone.
    """
    answers = await plane.batch([Get(database, class_name, id_, ()) for id_ in ids])
    for answer in answers:
        if isinstance(answer, MediatorError) and not isinstance(answer, NotFound):
            raise answer
    return {id_ for id_, a in zip(ids, answers, strict=True) if isinstance(a, NotFound)}
