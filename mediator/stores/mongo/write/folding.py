"""Folding: several updates of one record in one write, which applies all of them or none.

Each keeps its version, its result and its outbox entry: the record passes through every state, as
if one had been written after the other, but no reader sees one in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mediator.stores.mongo.layout import Document
from mediator.stores.mongo.outbox.entries import NAMED
from mediator.stores.mongo.sizes import MEASURED
from mediator.stores.mongo.write.decision import ConditionalUpdate
from mediator.stores.port import Write, WriteKind

__all__ = ["MOST_FOLDED", "folded", "is_foldable", "state_after"]

MOST_FOLDED: Final = NAMED // 2
"""Updates in one write at most: a record still names all of them once they are acknowledged."""


def is_foldable(write: Write) -> bool:
    """Whether a write asks nothing of its record but to be there, and is not remembered."""
    is_plain = not (write.expect or write.intent or write.claims or write.remember)
    return write.kind is WriteKind.UPDATE and bool(write.groups) and is_plain


def state_after(document: Document, step: ConditionalUpdate) -> Document:
    """Return the document as the next write finds it, once a foldable one has been applied."""
    after = {name: value for name, value in document.items() if name != MEASURED}
    for path, value in step.update["$set"].items():
        outer, _, inner = path.partition(".")
        after[outer] = after.get(outer, {}) | {inner: value} if inner else value
    for path in step.update.get("$unset", ()):
        outer, _, inner = path.partition(".")
        after[outer] = {name: v for name, v in after.get(outer, {}).items() if name != inner}
    return after


def folded(steps: Sequence[ConditionalUpdate]) -> ConditionalUpdate:
    """Return one update for several of a record, each decided on the state after the one before."""
    first, last = steps[0], steps[-1]
    sets: Document = {}
    unset: Document = {}
    for step in steps:
        now = step.update["$set"]
        gone = step.update.get("$unset", {})
        sets = {path: value for path, value in sets.items() if path not in gone} | now
        unset = {path: "" for path in unset if path not in now} | gone
    pending = [step.update["$push"]["_pending"] for step in steps]
    update: Document = {"$set": sets, "$push": {"_pending": {"$each": pending}}}
    if unset:
        update["$unset"] = unset
    return ConditionalUpdate(first.query, update, last.result, last.stamp)
