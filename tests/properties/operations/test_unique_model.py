"""Any sequence of writes and reservations has the same outcomes in every store as in the model."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import SystemConfig, Write, WriteKind
from tests.conformance.model_store import ModelStore
from tests.conformance.real_stores import STORES, opened

FIELDS = tuple(Field(name, FieldType.STRING) for name in ("a", "b", "c"))
UNIQUE = (("a",), ("b", "c"))

IDS = ("x", "y", "z")
TEXTS = st.sampled_from(["p", "q", None])

Texts: TypeAlias = dict[str, str | None]
Action: TypeAlias = WriteKind | Literal["lock", "reserve", "unlock"]


@dataclass(frozen=True)
class Step:
    """A write, or an operation on the intent of a record."""

    id: str
    action: Action
    values: Texts
    under_intent: bool


def _allowed_values(action: Action, values: Texts) -> Texts:
    """Leave out what an update must not have: only one of the fields of a constraint."""
    if action is WriteKind.UPDATE and ("b" in values) != ("c" in values):
        return {name: value for name, value in values.items() if name == "a"}
    return {} if action is WriteKind.DELETE else values


@st.composite
def steps(draw: st.DrawFn) -> Step:
    actions: list[Action] = [*WriteKind, WriteKind.REPLACE, "lock", "reserve", "reserve", "unlock"]
    action = draw(st.sampled_from(actions))
    drawn = draw(st.fixed_dictionaries({}, optional={"a": TEXTS, "b": TEXTS, "c": TEXTS}))
    return Step(
        draw(st.sampled_from(IDS)), action, _allowed_values(action, drawn), draw(st.booleans())
    )


class StepRunner:
    """Applies steps to one of the two stores; each run has distinct values."""

    def __init__(self, subject: ScratchClass, run: str) -> None:
        self._subject, self._run = subject, run
        self._reserving: dict[str, Step] = {}

    async def apply(self, step: Step) -> Any:
        """Return the store's result, but not which of several constraints is violated."""
        store: Any = self._subject.store
        id_, intent = f"{self._run} {step.id}", f"{self._run} {step.id}"
        keys = [(self._subject.fragment, id_)]
        if step.action == "lock":
            return (await store.lock(keys, intent))[0].intent
        if step.action == "unlock":
            self._reserving.pop(step.id, None)
            return await store.unlock(keys, intent)
        if step.action == "reserve":
            # Under one intent a record is reserved for one write; a repeated call is a retry.
            step = self._reserving.setdefault(step.id, step)
            [conflict] = await store.reserve([self._write(WriteKind.REPLACE, step, intent)])
            return conflict is not None
        intent = intent if step.under_intent else ""
        return (await self._subject.write(self._write(step.action, step, intent))).status

    async def values(self) -> list[Any]:
        records = await self._subject.read_all([f"{self._run} {id_}" for id_ in IDS])
        return [record and dict(record.values) for record in records]

    def _write(self, kind: WriteKind, step: Step, intent: str) -> Write:
        values: Values = {n: v and f"{self._run} {v}" for n, v in step.values.items()}
        groups = () if values else tuple(self._subject.fragment.groups)
        id_ = f"{self._run} {step.id}"
        return self._subject.writing(kind, id_, values=values, intent=intent, groups=groups)


@pytest.fixture(scope="module", params=STORES)
async def subjects(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[tuple[ScratchClass, ScratchClass]]:
    config = config_of[request.param]
    with_deadline = replace(config, namespace="property", deadline_s=30.0)
    async with opened(with_deadline) as store:
        real, model = Scratch(store), Scratch(ModelStore())
        yield (
            await real.subject(*FIELDS, unique=UNIQUE),
            await model.subject(*FIELDS, unique=UNIQUE),
        )
        await real.clear()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(steps(), min_size=4, max_size=16))
async def test_a_store_enforces_uniqueness_like_the_model(
    subjects: tuple[ScratchClass, ScratchClass], history: list[Step]
) -> None:
    run = uuid.uuid4().hex
    real, model = (StepRunner(subject, run) for subject in subjects)
    for step in history:
        assert await real.apply(step) == await model.apply(step), step
        assert await real.values() == await model.values(), step
