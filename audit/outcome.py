"""The outcome of an audit."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The findings, and what could not be looked up.

    Attributes:
        about: The subject of the audit.
        wrong: The findings, a line each.
        unknown: What could not be looked up, and why; a strict audit fails by it.
    """

    about: str
    wrong: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        summary = "care is needed" if self.wrong else "nothing is known against them"
        if self.unknown and not self.wrong:
            summary = "not all could be looked up"
        return (f"{self.about}: {summary}.", *self.wrong, *self.unknown)

    def passes(self, *, strict: bool) -> bool:
        """Whether the audit passes; strictly, only if everything could be looked up."""
        return not self.wrong and not (strict and self.unknown)
