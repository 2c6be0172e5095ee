"""Folds several updates of one record into one write, which applies all or none.

Each keeps its version, its result and its outbox entry, as if they had been written one after the
other, but no reader sees an intermediate state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mediator.stores.mongo.layout import Document
from mediator.stores.mongo.outbox.entries import MAX_ACKNOWLEDGED_NAMES
from mediator.stores.mongo.sizes import MEASURED
from mediator.stores.mongo.write.decision import ConditionalUpdate
from mediator.stores.port import Write, WriteKind

__all__ = ["MAX_FOLDED", "fold", "is_foldable", "state_after"]

MAX_FOLDED: Final = MAX_ACKNOWLEDGED_NAMES // 2
"""Maximum number of updates in one write: a record names all of them after acknowledgement."""


def is_foldable(write: Write) -> bool:
    """Whether a write only requires that its record is present, and is not remembered."""
    is_plain = not (write.expect or write.intent or write.claims or write.remember)
    return write.kind is WriteKind.UPDATE and bool(write.groups) and is_plain


def state_after(document: Document, step: ConditionalUpdate) -> Document:
    """Return the document after a foldable write, as the next write finds it."""
    after = {name: value for name, value in document.items() if name != MEASURED}
    for path, value in step.update["$set"].items():
        outer, _, inner = path.partition(".")
        after[outer] = after.get(outer, {}) | {inner: value} if inner else value
    for path in step.update.get("$unset", ()):
        outer, _, inner = path.partition(".")
        after[outer] = {name: v for name, v in after.get(outer, {}).items() if name != inner}
    return after


def fold(steps: Sequence[ConditionalUpdate]) -> ConditionalUpdate:
    """Return one update for several of a record, each decided on the state after the previous."""
    first, last = steps[0], steps[-1]
    sets: Document = {}
    unset: Document = {}
    for step in steps:
        set_paths = step.update["$set"]
        unset_paths = step.update.get("$unset", {})
        sets = {path: value for path, value in sets.items() if path not in unset_paths} | set_paths
        unset = {path: "" for path in unset if path not in set_paths} | unset_paths
    pending = [step.update["$push"]["_pending"] for step in steps]
    update: Document = {"$set": sets, "$push": {"_pending": {"$each": pending}}}
    if unset:
        update["$unset"] = unset
    return ConditionalUpdate(first.query, update, last.result, last.stamp)
