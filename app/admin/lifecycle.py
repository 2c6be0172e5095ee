"""Where a process is in its life, as platforms that run it ask for it.

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
    """What is known of the life of this process.

    Attributes:
        came_up: Whether it could serve at some time.
        draining: Whether it is about to end: what comes is still answered, but should go elsewhere.
    """

    def __init__(self) -> None:
        self.came_up = False
        self.draining = False

    def judge(self, verdict: Mapping[str, Any]) -> dict[str, Any]:
        """Return what readiness is, and note that the process has come up.

        Args:
            verdict: What the control plane says of the stores.
        """
        self.came_up = self.came_up or bool(verdict["ready"])
        ready = bool(verdict["ready"]) and not self.draining
        return {**verdict, "ready": ready, "draining": self.draining}
