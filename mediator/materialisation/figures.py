"""What a materialiser tells of its work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figures"]


@dataclass(slots=True)
class Figures:
    """The work on one partition, since its materialiser took it over.

    Attributes:
        rounds: Rounds that were finished.
        changes: Changes that were read from the feed.
        dirty: Objects that had changed, summed over the rounds, by class.
        written: Copies that were written, by class.
        forgotten: Copies that were removed, by class.
        builds: Objects dealt with, and how many there are about, of the classes being built.
        error: What went wrong last; empty if the last round went well.
    """

    rounds: int = 0
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
        """Return them as JSON, with who tells them and when."""
        return {
            "replica": replica,
            "at_us": at_us,
            "rounds": self.rounds,
            "changes": self.changes,
            "dirty": self.dirty,
            "written": self.written,
            "forgotten": self.forgotten,
            "builds": {name: list(progress) for name, progress in self.builds.items()},
            "error": self.error,
        }
