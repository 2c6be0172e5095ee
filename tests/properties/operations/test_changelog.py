"""Replaying the change log yields the records, for any sequence of writes."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mediator.model.change import Change
from mediator.model.operators import OperatorCall
from mediator.stores.conformance.change_reader import ChangeReader, json_of
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import ChangeLog, Record, SystemConfig, WriteKind
from tests.conformance.real_stores import STORES, opened
from tests.properties.operations.test_store_model import FIELDS, Step, StepRunner, steps

Images = dict[tuple[str, str], tuple[int, dict[str, Any]]]
"""For each object and group: its version and its values in JSON form."""


LOGGING = [name for name in STORES if name != "mongodb"]
"""The stores that keep logs; MongoDB keeps changes in the records."""


@pytest.fixture(scope="module", params=LOGGING)
async def reader(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[ChangeReader]:
    config = config_of[request.param]
    async with opened(replace(config, namespace="replay", deadline_s=30.0)) as store:
        assert isinstance(store, ChangeLog)
        scratch = Scratch(store)
        yield ChangeReader(await scratch.subject(*FIELDS.values()))
        await scratch.clear()


def replay(changes: list[Change]) -> Images:
    """Return the images that a replay of the changes yields."""
    images: Images = {}
    for change in changes:
        key = (change.object_id, change.group)
        version, values = images.pop(key, (0, None))
        assert change.version > version
        assert change.before == _expected_before(change, values)
        if change.after is not None:
            unchanged = values if change.kind == "update" and values is not None else {}
            unchanged = {
                n: value for n, value in unchanged.items() if n not in (change.before or {})
            }
            images[key] = (change.version, unchanged | dict(change.after))
    return images


def _expected_before(change: Change, values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the before image that a change should have."""
    if change.kind != "update" or values is None:
        return values
    names = {*(change.before or {}), *(change.after or {})}
    return {name: value for name, value in values.items() if name in names}


def images_of(reader: ChangeReader, records: list[Record]) -> Images:
    fragment = reader.subject.fragment
    return {
        (record.id, group): (
            record.versions[group],
            json_of(fragment, {n: record.values[n] for n in names if n in record.values}),
        )
        for record in records
        for group, names in fragment.groups.items()
    }


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batches=st.lists(st.lists(steps(), min_size=1, max_size=5), min_size=2, max_size=5))
async def test_replaying_the_log_yields_the_stored_records(
    reader: ChangeReader, batches: list[list[Step]]
) -> None:
    subject, prefix = reader.subject, uuid.uuid4().hex
    runner, ids = StepRunner(subject, prefix), [prefix + id_ for id_ in ("a", "é'\\")]
    first = [Step("a", WriteKind.CREATE), Step("é'\\", WriteKind.CREATE)]
    for batch in [first, *batches]:
        await runner.apply([_supported(reader, step) for step in batch])
    records = [record for record in await subject.read_all(ids) if record is not None]
    reader.logged.clear()
    changes = [change for id_ in ids for change in await reader.changes_of(id_)]
    assert len({(change.object_id, change.id) for change in changes}) == len(changes)
    assert replay(changes) == images_of(reader, records)


def _supported(reader: ChangeReader, step: Step) -> Step:
    store = reader.subject.store
    calls: list[OperatorCall] = [
        c for c in step.operators if store.supports(c.operator, FIELDS[c.field].type)
    ]
    return replace(step, operators=tuple(calls))
