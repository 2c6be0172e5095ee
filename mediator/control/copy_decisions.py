"""Decides the effect of a copy on each object, by its present value and its source: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mediator.base.errors import Conflict, Invalid, Location
from mediator.base.offload import throttled
from mediator.control.copy_report import NEED_RULES, SAMPLE, CopyRules, Fallback, Kind
from mediator.control.copy_sources import Source
from mediator.model.operations import Outcome
from mediator.schema.copies import FieldCopy
from mediator.schema.errors import InvalidValue
from mediator.schema.json_text import as_text
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.schema.values import Codec

__all__ = ["CopyDecisions", "Decision"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The kind of an object in a copy, and the value that it gets; MISSING: it is not written."""

    outcome: Outcome
    kind: Kind
    value: Value | MissingType = MISSING


@dataclass(frozen=True)
class CopyDecisions:
    """Decides the effect on an object, by its values and its source."""

    _codec: Codec
    _copy: FieldCopy
    _rules: CopyRules

    def __post_init__(self) -> None:
        for kind in NEED_RULES:
            self._check_rule(kind.value, self._rules.of(kind))

    def _check_rule(self, name: str, rule: Fallback | None) -> None:
        target, reason = self._copy.target, None
        if rule is Fallback.NULL and target.required:
            reason = f"cannot be null, as {self._copy.class_name}.{target.name} is required"
        if rule is Fallback.DEFAULT and not target.has_default:
            reason = f"cannot be default, as {self._copy.class_name}.{target.name} has none"
        if reason is not None:
            raise Invalid("The rule is impossible.", locations=[Location(name, reason)])

    def decide(self, outcomes: Sequence[Outcome], sources: Sequence[Source]) -> list[Decision]:
        pairs = zip(outcomes, sources, strict=True)
        return [self._decide(outcome, source) for outcome, source in throttled(pairs)]

    def _decide(self, outcome: Outcome, source: Source) -> Decision:
        present = (outcome.values or {}).get(self._copy.target.name, MISSING)
        is_writable = self._rules.overwrite or present is MISSING
        if source is MISSING:
            return Decision(outcome, Kind.EMPTY)
        kind, value = self._convert(source)
        if kind is Kind.CHANGED and self._are_equal(value, present):
            return Decision(outcome, Kind.EQUAL)
        if not is_writable:
            return Decision(outcome, Kind.KEPT)
        if kind is not Kind.CHANGED:
            value = self._fallback(kind, present)
        return Decision(outcome, kind, value)

    def _convert(self, source: Source) -> tuple[Kind, Value | MissingType]:
        """Return the value of the target, or the kind of an object without one."""
        if isinstance(source, Kind):
            return source, MISSING
        if source is None:
            return (Kind.CONFLICTS if self._copy.target.required else Kind.CHANGED), None
        try:
            return Kind.CHANGED, self._copy.conversion.convert(source)
        except InvalidValue:
            return Kind.CONFLICTS, MISSING

    def _fallback(self, kind: Kind, present: Value | MissingType) -> Value | MissingType:
        match self._rules.of(kind):
            case Fallback.NULL:
                value = None
            case Fallback.DEFAULT:
                name = self._copy.target.name
                value = self._codec.decode(name, self._codec.defaults([name])[name], "")
            case _:
                return MISSING
        return MISSING if self._are_equal(value, present) else value

    def _are_equal(self, one: Value | MissingType, other: Value | MissingType) -> bool:
        """Whether values are equal as JSON, including within documents."""
        if isinstance(one, MissingType) or isinstance(other, MissingType):
            return one is other
        encode, name = self._codec.encode, self._copy.target.name
        return one == other and as_text(encode({name: one})) == as_text(encode({name: other}))

    def require_rules(self, decisions: Sequence[Decision]) -> None:
        """Raise `Conflict` if objects need a missing rule."""
        for kind, meaning in NEED_RULES.items():
            ids = [decision.outcome.id for decision in decisions if decision.kind is kind]
            if ids and self._rules.of(kind) is None:
                rules = ", ".join(f"{kind}={fallback}" for fallback in Fallback)
                raise Conflict(
                    f"Objects of {self._copy.class_name} {meaning}: {', '.join(ids[:SAMPLE])}."
                    f" Set a rule for their field ({rules}), or correct them; a dry run"
                    " counts all of them."
                )
