"""Operators that the mediator applies itself, where no store has the values yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from mediator.model.apply import OperatorFailed, apply_operators
from mediator.model.operators import OperatorCall
from mediator.operations.merge import refusal_of
from mediator.schema.tree import Field
from mediator.schema.types import Values

__all__ = ["computed_values"]


def computed_values(
    fields: Mapping[str, Field], calls: Iterable[OperatorCall], current: Values
) -> Values:
    """Return the values that operators compute, as a store would.

    Raises:
        OperatorRefused: One cannot be applied to the value that is there.
    """
    try:
        return apply_operators(fields, calls, current, datetime.now(UTC))
    except OperatorFailed as refused:
        raise refusal_of(refused.failure) from refused
