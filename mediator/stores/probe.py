"""Finds out what a store can do: by a fast part of the conformance suite, and by looking.

Functional capabilities are *probed* in a scratch namespace, durability and replication are
*observed* from the server's configuration, and the rest is left to the operator to *declare*
(docs/design.md, "Guarantees"). What could not be found out is unknown, never refuted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mediator.model.filters import Compare, Comparison
from mediator.model.operators import APPLICABLE, Operator
from mediator.schema.annotations import DURABLE_S, Capability
from mediator.schema.tree import SCRATCH_DATABASE, Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Check
from mediator.stores.conformance.runner import CHECKS, CheckFinding, CheckStatus, run_check
from mediator.stores.port import (
    AccessPath,
    ChangeLog,
    Fragment,
    PendingChanges,
    ServerFacts,
    Store,
    StoreError,
    is_claiming,
    is_queryable,
)

__all__ = ["CapabilityFinding", "How", "ProbeReport", "State", "probe"]

State: TypeAlias = Literal["proven", "refuted", "unknown"]
How: TypeAlias = Literal["probed", "observed", "declared"]

_UNIQUE: Final = "unique.one_writer_gets_a_value"
"""The check that decides whether the store keeps values unique."""

_CHOSEN: Final = (
    "concurrency.one_winner_for_each_version",
    "concurrency.one_creation_wins",
    "concurrency.conditional_counters_lose_nothing",
    "writes.wrong_expectations_conflict",
    "values.records_are_found_by_id",
    "concurrency.increments_are_not_lost",
    "concurrency.what_was_acknowledged_is_read",
    "scanning.pages_give_every_id_once",
    "query_orders.integer_orders",
    "query_orders.order_follows_writes",
    "query_orders.every_page_size_follows_the_order",
    _UNIQUE,
)
"""The checks that speak for capabilities, the one that decides over data first."""

_WRITES_OWN: Final = (Operator.SET, Operator.UNSET)
"""Operators that a write has fields of its own for: no store has to support them."""

BUDGET_S = 10.0
"""For all checks, unless it is said how long they may take."""

_CONCURRENCY: Final = 4

_IMPLIED: Final = (Capability.CAUSAL, Capability.MONOTONIC, Capability.EVENTUAL)


@dataclass(frozen=True, slots=True)
class CapabilityFinding:
    """Whether a system has a capability, how that is known, and the evidence."""

    state: State
    how: How
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What was found of a store.

    Attributes:
        facts: What the server says of itself; None if it did not answer.
        inexact: Field types for which the store cannot do some applicable operator exactly; such
            fields are not placed there.
        has_outbox: Whether the store has an outbox; without one the feed would have a hole.
        claims: Whether it keeps values unique; else fields that have to be are not placed there.
        path_indexes: Whether it indexes paths within documents and maps; likewise.
    """

    capabilities: Mapping[Capability, CapabilityFinding]
    facts: ServerFacts | None
    inexact: frozenset[FieldType]
    has_outbox: bool
    claims: bool
    path_indexes: bool

    @property
    def acceptable(self) -> bool:
        """Whether the store may hold data."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the store is not acceptable; empty if it is."""
        updates = self.capabilities[Capability.CONDITIONAL_UPDATES]
        if updates.state == "refuted":
            return f"conditional updates of one record are not atomic: {updates.detail}"
        return "" if self.has_outbox else "it has no outbox of its changes"


async def probe(store: Store, *, budget_s: float | None = None) -> ProbeReport:
    """Find out what an opened store can do; nothing is raised for a store that fails.

    What is not reached within `budget_s`, the time for all checks, stays unknown; None: `BUDGET_S`.
    """
    deadline = time.monotonic() + (BUDGET_S if budget_s is None else budget_s)
    facts, by_name = None, {check.name: check for check in CHECKS}
    with suppress(StoreError):
        facts = await store.facts()
    findings = [await _within(deadline, store, by_name[name]) for name in _CHOSEN]
    findings += await _concurrently(deadline, store, _operators(store))
    capabilities = {capability: _probed(capability, findings) for capability in Capability}
    capabilities |= _implied(capabilities[Capability.LINEARIZABLE])
    capabilities |= _observed(facts)
    has_outbox = isinstance(store, ChangeLog | PendingChanges)
    return ProbeReport(
        capabilities,
        facts,
        _inexact(store, findings),
        has_outbox,
        _claims(store, findings),
        _indexes_paths(store),
    )


def _operators(store: Store) -> list[Check]:
    about = ((check, check.proves) for check in CHECKS)
    return [check for check, pair in about if isinstance(pair, tuple) and store.supports(*pair)]


async def _concurrently(
    deadline: float, store: Store, checks: Iterable[Check]
) -> list[CheckFinding]:
    """Run checks, a few at a time: their time goes into making and dropping scratch classes."""
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def run(check: Check) -> CheckFinding:
        async with slots:
            return await _within(deadline, store, check)

    return list(await asyncio.gather(*map(run, checks)))


async def _within(deadline: float, store: Store, check: Check) -> CheckFinding:
    left = deadline - time.monotonic()
    with suppress(TimeoutError):
        if left > 0:
            async with asyncio.timeout(left):
                return await run_check(store, check)
    return CheckFinding(check, CheckStatus.UNKNOWN, "the budget of the probe was used up", 0.0)


def _probed(capability: Capability, findings: Iterable[CheckFinding]) -> CapabilityFinding:
    """Judge a capability by all checks that speak for it: one that fails refutes it."""
    about = [finding for finding in findings if finding.check.proves == capability]
    if not about:
        return CapabilityFinding(
            "unknown", "declared", "cannot be probed; the operator may declare it"
        )
    for status, state in _PRECEDENCE:
        for finding in about:
            if finding.status is status:
                return CapabilityFinding(state, "probed", f"{finding.check.name}: {finding.detail}")
    return CapabilityFinding("proven", "probed", ", ".join(finding.check.name for finding in about))


_PRECEDENCE: Final[Sequence[tuple[CheckStatus, State]]] = (
    (CheckStatus.FAILED, "refuted"),
    (CheckStatus.NOT_OFFERED, "refuted"),
    (CheckStatus.UNKNOWN, "unknown"),
)


def _implied(linearizable: CapabilityFinding) -> dict[Capability, CapabilityFinding]:
    """Return the weaker consistency models: linearizability implies them, its lack says nothing."""
    proven = linearizable.state == "proven"
    detail = "implied by linearizable" if proven else "linearizable is not proven"
    finding = CapabilityFinding("proven" if proven else "unknown", "probed", detail)
    return dict.fromkeys(_IMPLIED, finding)


def _observed(facts: ServerFacts | None) -> dict[Capability, CapabilityFinding]:
    durability = facts.durability_s if facts else None
    replicas = facts.replicas if facts else None
    return {
        Capability.DURABILITY: _bounded(
            durability is not None and durability <= DURABLE_S,
            durability,
            "a crash may lose {} s of acknowledged writes",
        ),
        Capability.REPLICATION: _bounded(bool(replicas), replicas, "{} replicas are connected"),
    }


def _bounded(holds: bool, figure: float | None, detail: str) -> CapabilityFinding:
    if figure is None:
        return CapabilityFinding("unknown", "observed", "the server does not report it")
    return CapabilityFinding(
        "proven" if holds else "refuted", "observed", detail.format(f"{figure:g}")
    )


def _claims(store: Store, findings: Iterable[CheckFinding]) -> bool:
    failed = {finding.check.name for finding in findings if finding.status is CheckStatus.FAILED}
    return is_claiming(store) and _UNIQUE not in failed


def _indexes_paths(store: Store) -> bool:
    """Whether the store says that it finds values within a document by an index."""
    field = Field("value", FieldType.DOCUMENT, indexed_paths=("key",))
    fragment = Fragment("", SCRATCH_DATABASE, "probe", {field.name: field}, {})
    equal = Compare(Comparison.EQ, (field.name, "key"), "text")
    return is_queryable(store) and (store.pushdown(fragment, equal, ()).access is AccessPath.INDEX)


def _inexact(store: Store, findings: Iterable[CheckFinding]) -> frozenset[FieldType]:
    """Return the types with an operator that the store does not support, or gets wrong."""
    unsupported = {
        type_
        for operator, types in APPLICABLE.items()
        if operator not in _WRITES_OWN
        for type_ in types
        if not store.supports(operator, type_)
    }
    wrong = {
        finding.check.proves[1]
        for finding in findings
        if isinstance(finding.check.proves, tuple) and finding.status is CheckStatus.FAILED
    }
    return frozenset(unsupported | wrong)
