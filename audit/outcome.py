"""What an audit came to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, and of what nothing could be learned.

    Attributes:
        about: What was looked at.
        wrong: What is wrong, a line each.
        unasked: What nobody could be asked about, and why; an audit that must be whole fails by it.
    """

    about: str
    wrong: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What it comes to, for people."""
        found = "care is needed" if self.wrong else "nothing is known against them"
        if self.unasked and not self.wrong:
            found = "not all could be looked up"
        return (f"{self.about}: {found}.", *self.wrong, *self.unasked)

    def passes(self, *, strict: bool) -> bool:
        """Whether it is good enough; strictly, only if everything could be looked up."""
        return not self.wrong and not (strict and self.unasked)
