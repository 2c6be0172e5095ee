"""Which writes under intents would be too large (`Bounded`); large records alone are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mediator.stores.mongo import sizes
from mediator.stores.mongo.layout import Layout, layout_of
from mediator.stores.mongo.write.single import SingleWriter
from mediator.stores.port import SizedWrite, Status, Write, WriteKind, WriteResult

__all__ = ["exceeding"]

_BSON_PER_JSON: Final = 9
"""A digit and a comma in a list are an integer and its index in BSON; nothing grows more."""


async def exceeding(single: SingleWriter, calls: Sequence[SizedWrite]) -> list[bool]:
    """Return which writes would be too large; see `Bounded.exceeding`."""
    return [await _exceeds(single, write, state.size) for write, state in calls]


async def _exceeds(single: SingleWriter, write: Write, size: int | None) -> bool:
    layout = layout_of(write.fragment)
    if write.kind is WriteKind.DELETE or _fits(layout, write, size):
        return False
    document = await single.read(layout, write)
    if document is not None:
        document.pop("_intent", None)
    # Without its intent, which is why it would be applied although it is too large.
    decision = await single.decide(layout, replace(write, intent=""), document, "")
    return isinstance(decision, WriteResult) and decision.status is Status.TOO_LARGE


def _fits(layout: Layout, write: Write, size: int | None) -> bool:
    """Whether a write surely fits, by the size that its record has at most."""
    if size is None:
        return False
    entry = sizes.text_size(layout.effects.text(write, dict.fromkeys(write.groups, 0), 0))
    added = entry + sizes.size_of(layout.encode_all(write.values))
    if write.operators:
        added += _BSON_PER_JSON * entry
    # What is remembered has the values once more.
    return (size + added) * (1 if write.returning is None else 2) <= sizes.LARGEST
