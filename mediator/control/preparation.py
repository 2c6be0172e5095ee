"""Prepares a schema change before it is in force, without the lock, since that can take long.

The schema can change meanwhile. So the remaining work is determined again, under the lock, until
none remains.
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
class _Work:
    """Remaining work: constraints to check, indexes, and builds."""

    constraints: Constraints = field(default_factory=dict)
    indexes: tuple[AddedIndexes, ...] = ()
    builds: Builds = field(default_factory=dict)


@dataclass(eq=False)
class Preparation:
    """The finished preparations of one change.

    Attributes:
        checked: The constraints that objects were found to meet.
    """

    _check: ConstraintCheck
    _moves: MoveCheck
    _indexes: IndexBuilds
    _builds: UniqueBuilds
    checked: Constraints = field(default_factory=dict, init=False)
    _moves_checked: bool = field(default=False, init=False)
    _built_indexes: set[IndexKey] = field(default_factory=set, init=False)
    _finished_builds: set[str] = field(default_factory=set, init=False)

    async def remaining(self, plan: SchemaPlan, tighter: Constraints) -> _Work | None:
        """Return the remaining work of a change that makes constraints `tighter`; None: no work.

        Unique constraints are built last, because writes keep them from then on.
        """
        unchecked = {
            key: constraint for key, constraint in tighter.items() if key not in self.checked
        }
        if unchecked or (plan.moved and not self._moves_checked):
            return _Work(unchecked)
        if indexes := self._indexes.remaining(plan, self._built_indexes):
            return _Work(indexes=indexes)
        builds = await self._builds.start(plan, self._finished_builds)
        return _Work(builds=builds) if builds else None

    async def work_off(self, plan: SchemaPlan, work: _Work) -> None:
        """Do the remaining work.

        Raises:
            ConstraintViolated: Objects would break the new schema, or lose values.
            Conflict: The time was too short for all of it.
            MediatorError: A system does not answer.
        """
        database, redacted = plan.schema.database, plan.owned_classes
        if work.constraints:
            constraints = work.constraints.values()
            report = await self._check.run(database, constraints, redacted, plan.former_names)
            report.require_clean()
            self.checked = {**self.checked, **work.constraints}
        if not self._moves_checked:
            # The cutover repeats this while writes are held; here it can take longer.
            await self._moves.require(database, plan.moved, redacted)
            self._moves_checked = True
        self._built_indexes |= await self._indexes.finish(work.indexes)
        self._finished_builds |= await self._builds.finish(plan, work.builds)
