"""What a schema change needs before it is in force: made without the lock, as it may take long.

The schema may be changed meanwhile. So what is left is asked for again, under the lock, until
nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mediator.control.constraint_check import ConstraintCheck
from mediator.control.index_builds import AddedIndexes, IndexBuilds, IndexKey
from mediator.control.moves import MoveCheck
from mediator.control.schema_plan import SchemaPlan
from mediator.control.unique_builds import Builds, UniqueBuilds
from mediator.schema.tightening import Constraints

__all__ = ["Preparation"]


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left to be done: constraints that are not checked, indexes, and builds."""

    constraints: Constraints = field(default_factory=dict)
    indexes: tuple[AddedIndexes, ...] = ()
    builds: Builds = field(default_factory=dict)


@dataclass(eq=False)
class Preparation:
    """What was done for one change so far.

    Attributes:
        checked: The constraints that objects were found to meet.
    """

    _check: ConstraintCheck
    _moves: MoveCheck
    _indexes: IndexBuilds
    _builds: UniqueBuilds
    checked: Constraints = field(default_factory=dict, init=False)
    _are_moved: bool = field(default=False, init=False)
    _indexed: set[IndexKey] = field(default_factory=set, init=False)
    _built: set[str] = field(default_factory=set, init=False)

    async def left(self, plan: SchemaPlan, tighter: Constraints) -> _Left | None:
        """Return what is left of a change that makes constraints `tighter`; None: nothing.

        Unique constraints are built last, because writes keep them from then on.
        """
        left = {key: each for key, each in tighter.items() if key not in self.checked}
        if left or (plan.moved and not self._are_moved):
            return _Left(left)
        if indexes := self._indexes.left(plan, self._indexed):
            return _Left(indexes=indexes)
        builds = await self._builds.start(plan, self._built)
        return _Left(builds=builds) if builds else None

    async def go_on(self, plan: SchemaPlan, left: _Left) -> None:
        """Do what is left.

        Raises:
            ConstraintViolated: Objects would break the new schema, or lose values.
            Conflict: There was no time for all of it.
            MediatorError: A system does not answer.
        """
        database, unnamed = plan.schema.database, plan.owned
        if left.constraints:
            constraints = left.constraints.values()
            report = await self._check.run(database, constraints, unnamed, plan.former_names)
            report.require_clean()
            self.checked = {**self.checked, **left.constraints}
        if not self._are_moved:
            # It is required once more while writes are held; this may take longer.
            await self._moves.require(database, plan.moved, unnamed)
            self._are_moved = True
        self._indexed |= await self._indexes.finish(left.indexes)
        self._built |= await self._builds.finish(plan, left.builds)
