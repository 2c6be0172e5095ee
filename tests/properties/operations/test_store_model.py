"""Any sequence of writes has the same effect in every store as in the model."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status, Store, SystemConfig, Write, WriteKind, WriteResult
from tests.conformance.model_store import ModelStore
from tests.conformance.real_stores import STORES, opened

FIELDS = {
    "n": Field("n", FieldType.INTEGER, index=True),
    "f": Field("f", FieldType.FLOAT),
    "d": Field("d", FieldType.DECIMAL, group="side"),
    "s": Field("s", FieldType.STRING, index=True),
    "l": Field("l", FieldType.LIST, items=FieldType.STRING, max_length=3),
    "t": Field("t", FieldType.SET, items=FieldType.INTEGER, group="side"),
    "m": Field("m", FieldType.MAP, items=FieldType.FLOAT, max_length=2),
}

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
# A negative zero and a positive one are the same value; the schema keeps the positive one.
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
DECIMALS = st.builds(
    lambda n, e: Decimal(n).scaleb(e), st.integers(-9999, 9999), st.integers(-9, 9)
)
KEYS = st.sampled_from(["a", "a.b", "$c", "é"])

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": INTEGERS,
    "f": FLOATS,
    "d": DECIMALS,
    "s": TEXTS,
    "l": st.lists(TEXTS, max_size=3),
    "t": st.lists(INTEGERS, max_size=3).map(lambda items: sorted(set(items))),
    "m": st.dictionaries(KEYS, FLOATS, max_size=2),
}
NUMERIC = (Operator.INC, Operator.MUL, Operator.MIN, Operator.MAX)
ARGUMENTS: dict[tuple[str, Operator], st.SearchStrategy[Any]] = {
    **{(name, operator): VALUES[name] for name in "nfd" for operator in NUMERIC},
    **{("n", op): INTEGERS for op in (Operator.BIT_AND, Operator.BIT_OR, Operator.BIT_XOR)},
    **{("l", op): TEXTS for op in (Operator.PUSH, Operator.PUSH_FRONT, Operator.REMOVE)},
    **{("l", op): st.just(True) for op in (Operator.POP, Operator.SHIFT)},
    **{("t", op): st.integers(-3, 3) for op in (Operator.ADD_TO_SET, Operator.REMOVE)},
    ("m", Operator.PUT): st.dictionaries(KEYS, FLOATS, min_size=1, max_size=2),
    ("m", Operator.REMOVE): KEYS,
}


# Updates are the richest kind, and most errors concern existing records.
KINDS = st.sampled_from([*WriteKind, WriteKind.UPDATE, WriteKind.UPDATE, WriteKind.REPLACE])
EXPECTED = st.sampled_from(["nothing"] * 4 + ["current", "stale"])
OPERATIONS = st.sampled_from([None] * 4 + ["op1", "op2"])


@dataclass(frozen=True)
class Step:
    """One write, and the versions it expects."""

    id: str
    kind: WriteKind
    values: Values = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    operators: tuple[OperatorCall, ...] = ()
    expects: str = "nothing"
    require_present: bool = False
    operation: str | None = None


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(KINDS)
    some_values: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {}, optional={name: st.none() | value for name, value in VALUES.items()}
    )
    values = {} if kind is WriteKind.DELETE else draw(some_values)
    other_names = [name for name in FIELDS if name not in values]
    pairs = [pair for pair in ARGUMENTS if pair[0] in other_names]
    calls: dict[str, OperatorCall] = {}
    unset: tuple[str, ...] = ()
    if kind is WriteKind.UPDATE:
        for pair in draw(st.lists(st.sampled_from(pairs), max_size=3)) if pairs else ():
            calls[pair[0]] = OperatorCall(*pair, draw(ARGUMENTS[pair]))
        unset = tuple(
            draw(st.sets(st.sampled_from([n for n in other_names if n not in calls] or ["n"])))
        )
        unset = tuple(name for name in unset if name not in calls and name not in values)
    return Step(
        id=draw(st.sampled_from(["a", "é'\\"])),
        kind=kind,
        values=values,
        unset=unset,
        operators=tuple(calls.values()),
        expects=draw(EXPECTED),
        require_present=kind is WriteKind.REPLACE and draw(st.booleans()),
        operation=draw(OPERATIONS),
    )


class StepRunner:
    """Applies steps to one of the two stores."""

    def __init__(self, subject: ScratchClass, prefix: str) -> None:
        self._subject, self._prefix = subject, prefix

    async def record(self, id_: str) -> Any:
        return await self._subject.read(self._prefix + id_)

    async def apply(self, batch: list[Step]) -> list[WriteResult]:
        current = {step.id: await self.record(step.id) for step in batch}
        return await self._subject.write_all([self._write(s, current[s.id]) for s in batch])

    def _write(self, step: Step, record: Any) -> Write:
        expect = dict(record.versions) if record else {"main": 1}
        if step.expects == "stale":
            expect = {group: version - 1 for group, version in expect.items()}
        options: dict[str, Any] = {}
        if step.operation:
            options["operation"] = self._prefix + step.operation
        if not (step.values or step.unset or step.operators):
            options["groups"] = tuple(self._subject.fragment.groups)
        return self._subject.writing(
            step.kind,
            self._prefix + step.id,
            values=step.values,
            unset=step.unset,
            operators=step.operators,
            expect={} if step.expects == "nothing" else expect,
            require_present=step.require_present,
            remember=repr(replace(step, expects="")) if step.operation else None,
            returning=(),
            **options,
        )


def _visible(result: WriteResult) -> tuple[Any, ...]:
    missing = result.status in (Status.MISSING, Status.CONFLICT)
    status = "unmet" if missing else result.status
    return status, result.created, dict(result.values), result.failure


def _versions(record: Any) -> Mapping[str, int]:
    return record.versions if record else {}


@pytest.fixture(scope="module", params=STORES)
async def subjects(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[tuple[ScratchClass, ScratchClass]]:
    config = config_of[request.param]
    with_deadline = replace(config, namespace="property", deadline_s=30.0)
    async with opened(with_deadline) as store:
        real, model = Scratch(store), Scratch(ModelStore())
        yield await real.subject(*FIELDS.values()), await model.subject(*FIELDS.values())
        await real.clear()


def _supported(store: Store, step: Step) -> Step:
    """Return the step without operators that the store does not support."""
    calls = [c for c in step.operators if store.supports(c.operator, FIELDS[c.field].type)]
    return replace(step, operators=tuple(calls))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batches=st.lists(st.lists(steps(), min_size=1, max_size=5), min_size=3, max_size=6))
async def test_a_store_behaves_like_the_model(
    subjects: tuple[ScratchClass, ScratchClass], batches: list[list[Step]]
) -> None:
    real, model = (StepRunner(subject, prefix) for subject, prefix in _prefixed(subjects))
    batches = [[Step("a", WriteKind.CREATE), Step("é'\\", WriteKind.CREATE)], *batches]
    for batch in batches:
        supported = [_supported(subjects[0].store, step) for step in batch]
        before = {step.id: await real.record(step.id) for step in supported}
        results = await real.apply(supported)
        expected = await model.apply(supported)
        assert [_visible(r) for r in results] == [_visible(r) for r in expected]
        for id_, earlier in before.items():
            record, expected_record = await real.record(id_), await model.record(id_)
            assert (record and record.values) == (expected_record and expected_record.values)
            assert _versions(record).keys() == _versions(expected_record).keys()
            assert all(v >= _versions(earlier).get(g, 0) for g, v in _versions(record).items())


def _prefixed(subjects: tuple[ScratchClass, ScratchClass]) -> list[tuple[ScratchClass, str]]:
    prefix = uuid.uuid4().hex
    return [(subject, prefix) for subject in subjects]
