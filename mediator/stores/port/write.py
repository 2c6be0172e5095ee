"""Conditional writes to one record, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import TypeAlias

from mediator.base.immutable import immutable
from mediator.model.operators import OperatorCall, OperatorFailure
from mediator.schema.types import Value, Values
from mediator.stores.port.records import Fragment

__all__ = ["Claims", "Status", "TakenClaim", "Write", "WriteKind", "WriteResult"]


Claims: TypeAlias = Mapping[str, str | None]
"""Claims of a record, by the name of the unique constraint; None: no claim."""


class WriteKind(Enum):
    """The effect of a write on its record.

    CREATE: the record must be absent; it becomes exactly `values`.
    REPLACE: the record becomes exactly `values`, present before or not.
    UPDATE: the record must be present; `values` are set, `unset` removed, `operators` applied.
    DELETE: the record must be present; a tombstone keeps its versions.
    """

    CREATE = auto()
    REPLACE = auto()
    UPDATE = auto()
    DELETE = auto()


@immutable
class Write:
    """One atomic conditional write to one record, its outbox entry included.

    Attributes:
        operation: Unique id of the operation; with the group it makes the change id.
        groups: The groups that get a new version, max(previous + 1, store clock in us). For CREATE,
            REPLACE and DELETE: all groups of the fragment. An UPDATE without groups changes only
            the record's claims, its intent and the remembered operation: it makes no version and
            no outbox entry.
        values: Fields to set.
        unset: Fields to remove (UPDATE).
        operators: Operators to apply (UPDATE), each to a different field, none of them in `values`.
        expect: Versions that groups here must have, else the write is not applied (CONFLICT); 0:
            the group was never written, because it is younger than the record. An absent record
            meets no expectation.
        require_present: REPLACE only if the record is present (If-Match: *).
        creation_version: Set when the anchor is in another store: the creation_version to record
            (CREATE, REPLACE), or, for DELETE, the version of the anchor's tombstone: a record
            created later is left alone.
        remember: A fingerprint of the request: the store keeps (operation, fingerprint, result)
            with the write for `RETENTION_S`, and answers a repeated operation with REPLAYED.
        returning: Fields whose values after the write are returned; None: none; (): all.
        intent: The write intent that the record must have (`Lockable`); the write removes it and
            records it as the last joint write. Empty: the record must have none. Else the write
            is not applied (LOCKED).
        claims: The record's new claims by unique constraint (`Fragment.unique`, named by
            `constraint_name`); None: no claim. An UPDATE names the constraints whose fields it
            touches; the other constraints keep their claims. CREATE and REPLACE name all
            constraints. A DELETE claims nothing.
    """

    fragment: Fragment
    id: str
    kind: WriteKind
    operation: str
    groups: tuple[str, ...]
    values: Values = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    operators: tuple[OperatorCall, ...] = ()
    expect: Mapping[str, int] = field(default_factory=dict)
    require_present: bool = False
    creation_version: int | None = None
    remember: str | None = None
    returning: tuple[str, ...] | None = None
    intent: str = ""
    claims: Claims = field(default_factory=dict)

    def with_intent(
        self,
        intent: str,
        *,
        creation_version: int | None,
        remember: str | None,
        is_present: bool = False,
    ) -> Write:
        """Return the write under an intent; `dataclasses.replace` takes ten times as long.

        `is_present`: the record is known to be present, and stays present under the intent.
        """
        return Write(
            self.fragment,
            self.id,
            self.kind,
            self.operation,
            self.groups,
            self.values,
            self.unset,
            self.operators,
            self.expect,
            self.require_present or is_present,
            creation_version,
            remember,
            self.returning,
            intent,
            self.claims,
        )


class Status(Enum):
    """The outcome of a write.

    APPLIED: it took effect now.
    REPLAYED: this operation took effect before; the result is that of the first execution.

    All others leave the record unchanged:

    REUSED: the operation id was used before with another fingerprint.
    CONFLICT: a version in `expect` differs (`versions` has the current ones).
    MISSING: the record is absent (UPDATE, DELETE, require_present).
    EXISTS: the record is present (CREATE).
    REFUSED: an operator cannot be applied (`failure`).
    FENCED: the record was fenced against the token of the write.
    LOCKED: the record's intent is not the write's (`intent` has it).
    TAKEN: another record has a claim of the write (`taken`).
    TOO_LARGE: the record, or the outbox entry of the write, would be too large.
    """

    APPLIED = auto()
    REPLAYED = auto()
    REUSED = auto()
    CONFLICT = auto()
    MISSING = auto()
    EXISTS = auto()
    REFUSED = auto()
    FENCED = auto()
    LOCKED = auto()
    TAKEN = auto()
    TOO_LARGE = auto()


@immutable
class TakenClaim:
    """A claim that another record has.

    Attributes:
        constraint: The name of the unique constraint.
        holder: The id of that record.
        intent: The write intent under which the claim is reserved (`Claiming.reserve`); empty: the
            record claims it by its values.
    """

    constraint: str
    holder: str
    intent: str = ""


@immutable
class WriteResult:
    """The result of a `Write`.

    Attributes:
        created: Whether the record was absent before (CREATE, REPLACE).
        creation_version: The record's creation_version; for DELETE the highest version of the
            tombstone.
        versions: After APPLIED and REPLAYED: all versions of the record; after CONFLICT: the
            current ones; otherwise empty.
        values: The fields of `returning`. A replay returns the values of the first execution, if
            any.
        failure: With REFUSED.
        intent: With LOCKED: the intent that the record has, empty if none.
        taken: With TAKEN.
    """

    status: Status
    created: bool = False
    creation_version: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    failure: OperatorFailure | None = None
    intent: str = ""
    taken: TakenClaim | None = None
