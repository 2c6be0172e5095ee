"""Refusals: nodes that no system can serve, with what each system lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mediator.base.errors import Unplaceable

__all__ = ["Refusal", "refuse"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node that cannot be served: its requirement, and why each system is out."""

    node: str
    requirement: str
    systems: Mapping[str, str]

    def __str__(self) -> str:
        lacks = "; ".join(f"{name} {reason}" for name, reason in self.systems.items())
        return f"{self.node} requires {self.requirement} ({lacks or 'there is no system'})"


def refuse(refusals: Sequence[Refusal]) -> None:
    """Raise `Unplaceable` for the refusals, if there are any."""
    if not refusals:
        return
    reasons = "; ".join(str(refusal) for refusal in refusals)
    nodes = [
        {"node": r.node, "requirement": r.requirement, "systems": dict(r.systems)} for r in refusals
    ]
    raise Unplaceable(f"No system can serve {reasons}.", extra={"nodes": nodes})
