"""Effects of writes on objects, as far as they are known.

See docs/query-caching.md, "Which results a write changes".

If a query result may depend on a write, the record is read between the guard's `begin` and the
write. The values read are those before the write

- in groups that it does not write, if their versions are the same after the write;
- in groups that it writes, if no other write wrote them in the meantime: every writer announces
  the keys that it writes, so the guard knows of concurrent writes.

Everything else is unknown, as are the fragments on other systems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mediator.model.effects import Effect, Image, unknown
from mediator.model.operators import FIELD_OF
from mediator.schema.tree import MISSING
from mediator.stores.port import Fragment, Record, Status, Write, WriteKind, WriteResult

__all__ = ["Records", "effects_of", "repeated", "touched_by"]

Records = Mapping[tuple[Fragment, str], Record | None]
"""Records read before writes, by fragment and id."""

_IN_EFFECT = (Status.APPLIED, Status.REPLAYED)


def touched_by(write: Write) -> tuple[str, ...] | None:
    """Return the fields that a write may change; None: the object as a whole."""
    if write.kind is not WriteKind.UPDATE:
        return None
    return (*write.values, *write.unset, *map(FIELD_OF, write.operators))


def repeated(writes: Sequence[Write]) -> set[tuple[Fragment, str]]:
    """Return the records with several writes: a value read precedes only the first of them."""
    counts = Counter((write.fragment, write.id) for write in writes)
    return {record for record, count in counts.items() if count > 1}


def effects_of(
    writes: Sequence[Write], results: Sequence[WriteResult], records: Records, alone: bool
) -> dict[str, list[Effect]]:
    effects: dict[str, list[Effect]] = {}
    for write, result in zip(writes, results, strict=True):
        if result.status in _IN_EFFECT:
            record = records.get((write.fragment, write.id))
            effect = _effect(write, result, record, alone)
            effects.setdefault(write.fragment.class_name, []).append(effect)
    return effects


def _effect(write: Write, result: WriteResult, record: Record | None, alone: bool) -> Effect:
    if result.status is Status.REPLAYED:
        # It took effect at an earlier attempt; other writes may have followed.
        return _unknown_effect(write)
    if write.kind is WriteKind.UPDATE:
        before = _before(write, result, record, alone)
        return _between(before, _after_update(write, result, before), touched_by(write) or ())
    if write.creation_version is not None:
        # A fragment that is not the anchor: another system decides whether the object exists.
        return _unknown_effect(write)
    if write.kind is WriteKind.DELETE:
        return Effect(_before(write, result, record, alone), None)
    after = Image(write.id, write.fragment.fields.keys(), write.values)
    if write.kind is WriteKind.CREATE or result.created:
        return Effect(None, after)
    before = _before(write, result, record, alone)
    return _between(before, after, tuple(write.fragment.fields))


def _unknown_effect(write: Write) -> Effect:
    touched = touched_by(write)
    image = unknown(write.id)
    return Effect(image, image, None if touched is None else frozenset(touched))


def _before(write: Write, result: WriteResult, record: Record | None, alone: bool) -> Image:
    if record is None:
        return Image(write.id, frozenset(), {})
    known = frozenset(
        name
        for group, names in write.fragment.groups.items()
        if (alone if group in write.groups else _is_same(group, result, record))
        for name in names
    )
    return Image(write.id, known, {n: v for n, v in record.values.items() if n in known})


def _is_same(group: str, result: WriteResult, record: Record) -> bool:
    version = record.versions.get(group)
    return version is not None and version == result.versions.get(group)


def _after_update(write: Write, result: WriteResult, before: Image) -> Image:
    returned = _returned(write)
    known = {*before.known, *write.values, *write.unset} | returned
    # The result of an operator is known only if the store returned it.
    known -= {call.field for call in write.operators} - returned
    values = {**before.values, **write.values}
    for name in (*write.unset, *returned):
        values.pop(name, None)
    values |= {name: result.values[name] for name in returned if name in result.values}
    return Image(write.id, known, values)


def _returned(write: Write) -> set[str]:
    """Return the fields whose new values are in the store's result."""
    if write.returning is None:
        return set()
    return set(write.returning or write.fragment.fields)


def _between(before: Image, after: Image, touched: Sequence[str]) -> Effect:
    """Return the effect on an object that exists before and after."""
    changed = frozenset(name for name in touched if not _is_unchanged(name, before, after))
    return Effect(before, after, changed)


def _is_unchanged(name: str, before: Image, after: Image) -> bool:
    if name not in before.known or name not in after.known:
        return False
    was, is_ = before.values.get(name, MISSING), after.values.get(name, MISSING)
    # Equality is not enough: 1.0 and 1 are equal with different JSON, and so are -0.0 and 0.0.
    return was is is_ or (type(was) is type(is_) and was == is_ and repr(was) == repr(is_))
