"""Replays the entries of an outbox to changes with before and after images.

The document keeps the record's values before the first entry (``_base``). From there the entries
are replayed by the reference implementation of every operator, so the result is exact; and it must
end at the values in the document.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from mediator.base.batches import batches_by_size
from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.change import Change, change_id, kind_of
from mediator.model.operators import OperatorCall
from mediator.schema.constraints import unconstrained
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import FieldType
from mediator.stores.mongo import sizes
from mediator.stores.mongo.codec import moment, path_key, plain_text
from mediator.stores.mongo.layout import Document, Layout, is_live, layout_of
from mediator.stores.mongo.outbox.effect import OutboxEntry, convert_argument
from mediator.stores.mongo.outbox.entries import acknowledgement_text
from mediator.stores.outboxes import JSON_DECODERS
from mediator.stores.port import Fragment, UnrelayedChanges, WriteKind

__all__ = ["MAX_REPLAYED", "Acknowledgement", "Replay", "replay_of"]

MAX_REPLAYED: Final = 256
"""Maximum number of entries of a record that are replayed at a time.

Their bytes are also bounded (`sizes`).
"""

log = logging.getLogger(__name__)

_Json: TypeAlias = dict[str, Any]
_Decode: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The receipt of `UnrelayedChanges`: the update that acknowledges them.

    Attributes:
        condition: The condition that nobody has acknowledged since, in the same generation.
        entries: The entries to remove from the outbox.
        base: The new ``_base``; None: it is removed.
        acknowledged: The new ``_acknowledged``.
    """

    condition: Document
    entries: Sequence[str]
    base: str | None
    acknowledged: str


class Replay:
    """Replays the entries of one fragment's records."""

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._layout: Layout = layout_of(fragment)
        # A bound that was set since must not refuse earlier operators.
        self._fields = {n: unconstrained(f) for n, f in fragment.fields.items()}
        self._values = {name: _decoder(field) for name, field in fragment.fields.items()}

    def unrelayed(self, document: Document) -> UnrelayedChanges:
        """Return the changes in a document's outbox, or the first of them if they are many.

        Args:
            document: With ``values``, ``tombstone``, ``creation_version``, ``_base``,
                ``_acknowledged``, and up to one entry of ``_pending`` more than can be replayed at
                a time, which shows that there are more.
        """
        texts = next(
            batches_by_size(
                document["_pending"], sizes.text_size, MAX_REPLAYED, sizes.MAX_VALUES_BYTES
            )
        )
        effects = [OutboxEntry.read(text) for text in texts]
        states = [_base(document), *[None] * len(texts)]
        for number, effect in enumerate(effects):
            states[number + 1] = self._after(states[number], effect)
        agrees, complete = True, len(texts) == len(document["_pending"])
        if complete:
            current = self._current(document)
            agrees = self._known_fields(states[-1]) == current
            states[-1] = _without_erased(states[-1], document) if agrees else current
        id_ = plain_text(document["_id"])
        changes: list[Change] = []
        for number, effect in enumerate(effects):
            changes += self._changes(id_, effect, states[number], states[number + 1])
        base = self._next_base(id_, document, texts, states[-1])
        receipt = Acknowledgement(
            _unacknowledged(document), texts, base, acknowledgement_text(document, effects)
        )
        return UnrelayedChanges(self._fragment, id_, changes, agrees, receipt, complete)

    def _next_base(
        self, id_: str, document: Document, texts: Sequence[str], state: _Json | None
    ) -> str | None:
        """Return the base of the remaining entries; None if MongoDB would refuse it."""
        if state is None:
            return None
        base = orjson.dumps(state).decode()
        removed_bytes, size = sum(map(sizes.text_size, texts)), sizes.text_size(base)
        if removed_bytes + size < sizes.MAX_VALUES_BYTES // 5:  # too little to matter
            return base
        after = (
            sizes.size_of(document)
            - removed_bytes
            - sizes.text_size(document.get("_base", ""))
            + size
        )
        if max(removed_bytes + size, after) <= sizes.SERVER_LIMIT_BYTES:
            return base
        fragment = self._fragment
        log.error(
            "%s: %s/%s/%s is too large to keep the before image of its next change; delete it, or"
            " replace it by a smaller one",
            fragment.system,
            fragment.database,
            fragment.class_name,
            id_,
        )
        return None

    def _current(self, document: Document) -> _Json | None:
        if not is_live(document):
            return None
        return self._layout.effects.values(self._layout.decode_all(document.get("values")))

    def _known_fields(self, state: _Json | None) -> _Json | None:
        """Remove fields that the class no longer has, or not yet in this process."""
        return state and {name: v for name, v in state.items() if name in self._fields}

    def _after(self, before: _Json | None, effect: OutboxEntry) -> _Json | None:
        if effect.kind is WriteKind.DELETE:
            return None
        if effect.kind is not WriteKind.UPDATE:
            return dict(effect.sets)
        after = {name: v for name, v in (before or {}).items() if name not in effect.unset}
        after.update(effect.sets)
        for call in effect.operators:
            if call.field in self._fields:
                result = self._apply(after.get(call.field, MISSING), call, effect.stamp)
                if result is not MISSING:
                    after[call.field] = result
        return after

    def _apply(self, value: Any, call: OperatorCall, stamp: int) -> Any:
        name, field, layout = call.field, self._fields[call.field], self._layout
        try:
            present = value if value is None or value is MISSING else self._values[name](value)
            argument = convert_argument(field, call, JSON_DECODERS.get(field.items or field.type))
            call = replace(call, argument=argument)
            result = apply_operator(field, present, call, moment(stamp))
        except (OperatorFailed, ArithmeticError, TypeError, ValueError):
            # The field had another type then, so the values differ from the record's, which is
            # reported.
            return value
        return result if isinstance(result, MissingType) else layout.effects.value(name, result)

    def _changes(
        self, id_: str, effect: OutboxEntry, before: _Json | None, after: _Json | None
    ) -> Iterator[Change]:
        fragment = self._fragment
        touched: frozenset[str] | None = None
        if effect.kind is WriteKind.UPDATE:
            names = (call.field for call in effect.operators)
            touched = frozenset((*effect.sets, *effect.unset, *names))
        for group, version in effect.versions.items():
            members = fragment.groups.get(group, ())
            written = members if touched is None else [n for n in members if n in touched]
            yield Change(
                change_id(effect.operation, group),
                fragment.database,
                fragment.class_name,
                id_,
                group,
                version,
                kind_of(effect.kind.name.lower(), absent=before is None),
                _project(before, written),
                _project(after, written),
                effect.stamp,
                fragment.database_id,
            )


def _project(state: _Json | None, names: Sequence[str]) -> _Json | None:
    return None if state is None else {name: state[name] for name in names if name in state}


def _without_erased(state: _Json | None, document: Document) -> _Json | None:
    """Remove fields that the document no longer has: they were erased without a write."""
    stored = document.get("values", {})
    return state and {name: value for name, value in state.items() if path_key(name) in stored}


def _unacknowledged(document: Document) -> Document:
    names = ("_acknowledged", "creation_version")
    return {name: document.get(name, {"$exists": False}) for name in names}


def _base(document: Mapping[str, Any]) -> _Json | None:
    text = document.get("_base")
    return None if text is None else orjson.loads(text)


def _decoder(field: Field) -> _Decode:
    """Return a decoder of the JSON form of a field's values, which does not validate."""
    if field.items is None:
        return JSON_DECODERS.get(field.type, _same)
    item = JSON_DECODERS.get(field.items, _same)
    if field.type is FieldType.MAP:
        return lambda value: {key: item(member) for key, member in value.items()}
    return lambda value: [item(element) for element in value]


def _same(value: Any) -> Any:
    return value


replay_of = lru_cache(maxsize=1024)(Replay)
"""The replay of a fragment, compiled once."""
