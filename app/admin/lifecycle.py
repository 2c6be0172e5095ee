"""The state that platforms probe: startup, liveness, readiness.

Three questions have three answers. *Startup*: has it come up once? Until then nobody should ask the
other two; a process that never was able to serve has not come up. *Live*: does it still answer? If
not, kill it; stores that are away are no reason. *Ready*: should requests be sent to it now? Not
while there is nothing that it could serve, and not any more once it drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Lifecycle"]


class Lifecycle:
    """Whether this process has started, and whether it drains.

    Attributes:
        came_up: Whether it could serve at some time.
        draining: Whether it is about to end: what comes is still answered, but should go elsewhere.
    """

    def __init__(self) -> None:
        self.came_up = False
        self.draining = False

    def readiness(self, stores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the readiness of the process, and record that it has come up."""
        self.came_up = self.came_up or bool(stores["ready"])
        ready = bool(stores["ready"]) and not self.draining
        return {**stores, "ready": ready, "draining": self.draining}
