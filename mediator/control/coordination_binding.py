"""The binding of the coordination Redis to the installation of this catalogue."""

from __future__ import annotations

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.installation import installation_id
from mediator.coordination.connecting import Coordination

__all__ = ["CoordinationBinding"]


class CoordinationBinding:
    """Binds the coordination Redis at the start, and later in case it was emptied."""

    def __init__(self, catalogue: Catalogue, coordination: Coordination) -> None:
        self._catalogue = catalogue
        self._coordination = coordination
        self._installation: str | None = None

    async def renew(self) -> None:
        """Bind the Redis to our installation, unless it is bound.

        Raises:
            BoundToAnother: It is bound to another installation, and no longer used here.
            Unavailable: The Redis does not answer, or the catalogue at the first call.
        """
        if self._installation is None:
            self._installation = await installation_id(self._catalogue)
        await self._coordination.bind(self._installation)
