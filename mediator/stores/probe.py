"""Detects a store's capabilities: by a fast subset of the conformance suite, and by observation.

Functional capabilities are *probed* in a scratch namespace, durability and replication are
*observed* from the server's configuration, and the operator *declares* the others (docs/design.md,
"Guarantees"). Undetermined capabilities are unknown, never refuted.
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
"""The check of whether the store keeps values unique."""

_CAPABILITY_CHECKS: Final = (
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
"""The checks of capabilities, the most important for data safety first."""

_SEPARATE_OPERATORS: Final = (Operator.SET, Operator.UNSET)
"""Operators with separate fields in a write: no store has to support them."""

BUDGET_S = 10.0
"""Default time for all checks, in seconds."""

_CONCURRENCY: Final = 4

_IMPLIED: Final = (Capability.CAUSAL, Capability.MONOTONIC, Capability.EVENTUAL)


@dataclass(frozen=True, slots=True)
class CapabilityFinding:
    """Whether a system has a capability, how it was determined, and the evidence."""

    state: State
    how: How
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The findings about a store.

    Attributes:
        facts: The facts that the server reports; None if it did not answer.
        inexact: Field types for which some applicable operator is inexact in the store; such fields
            are not placed there.
        has_outbox: Whether the store has an outbox; without one the feed would have a gap.
        claims: Whether it keeps values unique; else unique fields are not placed there.
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
        """Whether the store is safe for data."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the store is not acceptable; empty if it is."""
        updates = self.capabilities[Capability.CONDITIONAL_UPDATES]
        if updates.state == "refuted":
            return f"conditional updates of one record are not atomic: {updates.detail}"
        return "" if self.has_outbox else "it has no outbox of its changes"


async def probe(store: Store, *, budget_s: float | None = None) -> ProbeReport:
    """Detect the capabilities of an opened store; nothing is raised for a store that fails.

    Checks beyond `budget_s`, the time for all checks, stay unknown; None: `BUDGET_S`.
    """
    deadline = time.monotonic() + (BUDGET_S if budget_s is None else budget_s)
    facts, by_name = None, {check.name: check for check in CHECKS}
    with suppress(StoreError):
        facts = await store.facts()
    findings = [await _within(deadline, store, by_name[name]) for name in _CAPABILITY_CHECKS]
    findings += await _concurrently(deadline, store, _operators(store))
    capabilities = {capability: _probed_finding(capability, findings) for capability in Capability}
    capabilities |= _implied_findings(capabilities[Capability.LINEARIZABLE])
    capabilities |= _observed_findings(facts)
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
    operator_checks = ((check, check.proves) for check in CHECKS)
    return [
        check
        for check, pair in operator_checks
        if isinstance(pair, tuple) and store.supports(*pair)
    ]


async def _concurrently(
    deadline: float, store: Store, checks: Iterable[Check]
) -> list[CheckFinding]:
    """Run checks, a few at a time: most of their time is creating and dropping scratch classes."""
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def run(check: Check) -> CheckFinding:
        async with slots:
            return await _within(deadline, store, check)

    return list(await asyncio.gather(*map(run, checks)))


async def _within(deadline: float, store: Store, check: Check) -> CheckFinding:
    remaining_s = deadline - time.monotonic()
    with suppress(TimeoutError):
        if remaining_s > 0:
            async with asyncio.timeout(remaining_s):
                return await run_check(store, check)
    return CheckFinding(check, CheckStatus.UNKNOWN, "the budget of the probe was used up", 0.0)


def _probed_finding(capability: Capability, findings: Iterable[CheckFinding]) -> CapabilityFinding:
    """Return the finding of a capability from all its checks: one failure refutes it."""
    relevant = [finding for finding in findings if finding.check.proves == capability]
    if not relevant:
        return CapabilityFinding(
            "unknown", "declared", "cannot be probed; the operator may declare it"
        )
    for status, state in _PRECEDENCE:
        for finding in relevant:
            if finding.status is status:
                return CapabilityFinding(state, "probed", f"{finding.check.name}: {finding.detail}")
    return CapabilityFinding(
        "proven", "probed", ", ".join(finding.check.name for finding in relevant)
    )


_PRECEDENCE: Final[Sequence[tuple[CheckStatus, State]]] = (
    (CheckStatus.FAILED, "refuted"),
    (CheckStatus.NOT_OFFERED, "refuted"),
    (CheckStatus.UNKNOWN, "unknown"),
)


def _implied_findings(linearizable: CapabilityFinding) -> dict[Capability, CapabilityFinding]:
    """Return findings of the weaker models: linearizability implies them; else they are unknown."""
    proven = linearizable.state == "proven"
    detail = "implied by linearizable" if proven else "linearizable is not proven"
    finding = CapabilityFinding("proven" if proven else "unknown", "probed", detail)
    return dict.fromkeys(_IMPLIED, finding)


def _observed_findings(facts: ServerFacts | None) -> dict[Capability, CapabilityFinding]:
    durability = facts.durability_s if facts else None
    replicas = facts.replicas if facts else None
    return {
        Capability.DURABILITY: _observed_finding(
            durability is not None and durability <= DURABLE_S,
            durability,
            "a crash may lose {} s of acknowledged writes",
        ),
        Capability.REPLICATION: _observed_finding(
            bool(replicas), replicas, "{} replicas are connected"
        ),
    }


def _observed_finding(holds: bool, figure: float | None, detail: str) -> CapabilityFinding:
    if figure is None:
        return CapabilityFinding("unknown", "observed", "the server does not report it")
    return CapabilityFinding(
        "proven" if holds else "refuted", "observed", detail.format(f"{figure:g}")
    )


def _claims(store: Store, findings: Iterable[CheckFinding]) -> bool:
    failed = {finding.check.name for finding in findings if finding.status is CheckStatus.FAILED}
    return is_claiming(store) and _UNIQUE not in failed


def _indexes_paths(store: Store) -> bool:
    """Whether the store plans to use an index for values within a document."""
    field = Field("value", FieldType.DOCUMENT, indexed_paths=("key",))
    fragment = Fragment("", SCRATCH_DATABASE, "probe", {field.name: field}, {})
    equal = Compare(Comparison.EQ, (field.name, "key"), "text")
    return is_queryable(store) and (store.pushdown(fragment, equal, ()).access is AccessPath.INDEX)


def _inexact(store: Store, findings: Iterable[CheckFinding]) -> frozenset[FieldType]:
    """Return the types with an operator that the store does not support, or applies wrongly."""
    unsupported = {
        type_
        for operator, types in APPLICABLE.items()
        if operator not in _SEPARATE_OPERATORS
        for type_ in types
        if not store.supports(operator, type_)
    }
    failed = {
        finding.check.proves[1]
        for finding in findings
        if isinstance(finding.check.proves, tuple) and finding.status is CheckStatus.FAILED
    }
    return frozenset(unsupported | failed)
