"""The longest lifetime of copies that an installation has ever handed out.

A sketch that was lost has everything revalidated until no copy can be fresh that it has forgotten.
Where it forgets how long that is as well, in memory or on a Redis that was emptied, its settings
would say so, had nobody ever reduced them. So the catalogue remembers it.
"""

from __future__ import annotations

from typing import Final

from app.coherence.caches import has_sketch, sketch_limits
from app.settings.main import CacheSettings, MediatorSettings
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import highest
from sketch.protocol.bounds import lifetime_us

__all__ = ["earlier_lifetime_s"]

_NAME: Final = "sketch:lifetime_us"


async def earlier_lifetime_s(settings: MediatorSettings, caching: CacheSettings) -> float:
    """Return for how long copies may be fresh that any replica was ever set to hand out (seconds).

    To be called before the first is handed out: it remembers these settings, too. Where none is,
    the catalogue is not asked.

    Raises:
        MissingSetting: There is no catalogue.
        CatalogueMismatch: This code cannot work with the tables there are.
        Unavailable: The catalogue does not answer.
    """
    if not has_sketch(caching, is_coordinated=bool(settings.coordination_url)):
        return 0.0
    migrate = settings.catalogue_migrate == "auto"
    catalogue = Catalogue(settings.required_catalogue_url, migrate=migrate)
    try:
        await catalogue.open()
        own_us = lifetime_us(sketch_limits(caching))
        return await highest(catalogue, _NAME, own_us) / 1_000_000
    finally:
        await catalogue.close()
