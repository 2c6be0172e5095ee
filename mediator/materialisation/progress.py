"""The progress of a materialiser, as it is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["MaterialiserProgress"]


@dataclass(slots=True)
class MaterialiserProgress:
    """The work on one partition, since its materialiser got the lease.

    Attributes:
        refreshes: Refreshes that were finished.
        changes: Changes that were read from the feed.
        dirty: Objects that had changed, summed over the refreshes, by class.
        written: Copies that were written, by class.
        forgotten: Copies that were removed, by class.
        builds: Objects done, and about how many there are, of the copies being built.
        error: Of the last refresh; empty: none.
    """

    refreshes: int = 0
    changes: int = 0
    dirty: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    builds: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    error: str = ""

    def add(self, class_name: str, written: int, forgotten: int = 0, dirty: int = 0) -> None:
        """Count copies."""
        self.dirty[class_name] = self.dirty.get(class_name, 0) + dirty
        self.written[class_name] = self.written.get(class_name, 0) + written
        self.forgotten[class_name] = self.forgotten.get(class_name, 0) + forgotten

    def document(self, replica: str, at_us: int) -> dict[str, Any]:
        """Return it as JSON, with the replica and the time."""
        return {
            "replica": replica,
            "at_us": at_us,
            "refreshes": self.refreshes,
            "changes": self.changes,
            "dirty": self.dirty,
            "written": self.written,
            "forgotten": self.forgotten,
            "builds": {name: list(progress) for name, progress in self.builds.items()},
            "error": self.error,
        }
