"""Pages of the ids of a class and of its copy together, in their order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from mediator.materialisation.copier import CHUNK
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["id_pages"]


async def id_pages(systems: Systems, route: ClassRoute) -> AsyncIterator[list[str]]:
    """Yield the ids of all objects and of all copies, page by page.

    Raises:
        Unavailable: A system does not answer.
    """
    assert route.copy is not None
    after: str | None = None
    while True:
        scans = [await _ids(systems, each, after) for each in (route.anchor, route.copy)]
        full = [ids for ids in scans if len(ids) == CHUNK]
        # After the end of a full page there may be more ids, which have to be compared together.
        end = min((ids[-1] for ids in full), key=str.encode, default=None)
        ids = {id_ for scan in scans for id_ in scan}
        page = sorted(i for i in ids if end is None or i.encode() <= end.encode())
        if page:
            yield page
        if end is None:
            return
        after = end


async def _ids(systems: Systems, fragment: Fragment, after: str | None) -> list[str]:
    guarded = systems.get(fragment.system)
    scan = partial(guarded.store.scan, fragment, after, CHUNK, ())
    try:
        return [record.id for record in await guarded.guarded(scan)]
    except StoreError as error:
        raise unavailable(guarded, error, "read") from error
