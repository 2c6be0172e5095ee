"""The suite itself: a faithful store passes all of it, and every defect is found."""

from __future__ import annotations

import asyncio
import gc
import unicodedata
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from mediator.model.operators import Operator
from mediator.schema.types import FieldType, Values
from mediator.stores.conformance import CHECKS, CheckStatus, run
from mediator.stores.conformance.concurrency import together
from mediator.stores.port import (
    Fragment,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    Status,
    StoreTimeout,
    StoreUnavailable,
    Write,
    WriteKind,
    WriteResult,
)
from tests.conformance.model_store import ModelStore


class Rounding(ModelStore):
    """Stores integers as doubles, as a store with JSON numbers may."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return await super().write([replace(call, values=_rounded(call.values)) for call in calls])


def _rounded(values: Values) -> Values:
    return {k: int(float(v)) if type(v) is int else v for k, v in values.items()}


class Nullless(ModelStore):
    """Treats null as missing."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        non_null: list[Values] = [
            {k: v for k, v in c.values.items() if v is not None} for c in calls
        ]
        return await super().write(
            [replace(c, values=v) for c, v in zip(calls, non_null, strict=True)]
        )


class Normalising(ModelStore):
    """Normalises ids."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return await super().write([replace(c, id=_nfc(c.id)) for c in calls])

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        return await super().read([replace(c, id=_nfc(c.id)) for c in calls])


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


class Unconditional(ModelStore):
    """Ignores expected versions."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return await super().write([replace(call, expect={}) for call in calls])


class Racing(ModelStore):
    """Compares versions first and writes afterwards."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [await self._compare_and_write(call) for call in calls]

    async def _compare_and_write(self, call: Write) -> WriteResult:
        [record] = await self.read([Read(call.fragment, call.id)])
        await asyncio.sleep(0)
        if record and all(record.versions[g] == v for g, v in call.expect.items()):
            call = replace(call, expect={})
        return (await super().write([call]))[0]


class Forgetful(ModelStore):
    """Forgets the versions of deleted records, and its operations."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        results = await super().write(calls)
        for call in calls:
            row = self.rows(call.fragment)[call.id]
            if not row.is_live:
                row.versions = dict.fromkeys(row.versions, 0)
        return results

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        return None


class Repeating(ModelStore):
    """Applies a repeated operation a second time."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return await super().write([replace(call, remember=None) for call in calls])


class Collated(ModelStore):
    """Scans in the order of a language instead of byte order."""

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        records = await super().scan(fragment, after, limit, fields)
        return sorted(records, key=lambda record: record.id.casefold())


class KeepsDropped(ModelStore):
    """Counts tombstones, and keeps dropped classes."""

    async def count(self, fragment: Fragment) -> int:
        return len(self.rows(fragment))

    async def drop(self, fragment: Fragment) -> None: ...


class Approximate(ModelStore):
    """Adds floats less exactly than IEEE 754."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return [_round_floats(result) for result in await super().write(calls)]


def _round_floats(result: WriteResult) -> WriteResult:
    values = {k: round(v, 6) if type(v) is float else v for k, v in result.values.items()}
    return replace(result, values=values)


class Widening(ModelStore):
    """Raises the version of every group with every write."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        return await super().write([replace(c, groups=tuple(c.fragment.groups)) for c in calls])


class Overwriting(ModelStore):
    """Overwrites existing records by creations."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        create, put = WriteKind.CREATE, WriteKind.REPLACE
        return await super().write([replace(c, kind=put) if c.kind is create else c for c in calls])


class Unfenced(ModelStore):
    """Checks fences before a write, but not in the write."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        rows = [self.rows(call.fragment).get(call.id) for call in calls]
        if any(row is not None and token in row.fenced for row in rows):
            return [WriteResult(Status.FENCED) for _ in calls]
        await asyncio.sleep(0)
        return await super().write(calls)


class Unlocked(ModelStore):
    """Checks only the intents of records that exist."""

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        for call in calls:
            row = self.rows(call.fragment).get(call.id)
            if row is not None and not row.is_live and not call.intent:
                row.intent = ""
        return await super().write(calls, token)


class Unheeding(ModelStore):
    """Sets intents on records that are fenced against them."""

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        for fragment, id_ in keys:
            self.row(fragment, id_).fenced.discard(intent)
        return await super().lock(keys, intent, redo)


class Replacing(ModelStore):
    """Replaces the redo record of an intent that a record already has."""

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        states = await super().lock(keys, intent, redo)
        for (fragment, id_), state in zip(keys, states, strict=True):
            key = (fragment.database, fragment.class_name, id_)
            self.redo[key] = (state.intent, redo)
        return states


class Showing(ModelStore):
    """Counts absent records with an intent."""

    async def count(self, fragment: Fragment) -> int:
        rows = self.rows(fragment).values()
        return sum(row.is_live or bool(row.intent) for row in rows)


class Forgiving(ModelStore):
    """Fences only existing records."""

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        if id_ not in self.rows(fragment):
            return {}
        return await super().fence(fragment, id_, token)


DEFECTS = {
    Rounding: "values.integer_at_its_edges",
    Nullless: "missing.null_is_not_missing",
    Normalising: "values.unicode_is_not_normalised",
    Unconditional: "writes.wrong_expectations_conflict",
    Racing: "concurrency.one_winner_for_each_version",
    Forgetful: "idempotency.operations_can_be_recalled",
    Repeating: "idempotency.every_kind_is_replayed",
    Collated: "scanning.pages_give_every_id_once",
    KeepsDropped: "lifecycle.dropping_leaves_nothing",
    Approximate: "operators.inc_on_float",
    Widening: "versions.only_written_groups_get_versions",
    Overwriting: "concurrency.one_creation_wins",
    Unfenced: "fencing.write_or_fence_comes_first",
    Unlocked: "intents.absent_records_can_have_intents",
    Unheeding: "intents.fenced_records_take_no_intent",
    Replacing: "intents.a_redo_record_is_that_of_its_intent",
    Showing: "intents.intents_do_not_affect_reads",
    Forgiving: "fencing.absent_records_are_fenced",
}


async def test_faithful_store_conforms() -> None:
    report = await run(ModelStore())
    assert report.conforms, report.having(CheckStatus.FAILED)
    assert [f.check for f in report.findings] == list(CHECKS)


@pytest.mark.parametrize("defective", DEFECTS)
async def test_every_defect_is_found(defective: type[ModelStore]) -> None:
    report = await run(defective(), only=DEFECTS[defective])
    assert [finding.status for finding in report.findings] == [CheckStatus.FAILED]


async def test_wrong_operators_count_only_where_they_are_supported() -> None:
    class Modest(Approximate):
        def supports(self, operator: Operator, type_: FieldType) -> bool:
            return type_ is not FieldType.FLOAT

    report = await run(Modest(), only="operators.inc_on_*")
    wrong = {finding.check.name for finding in report.having(CheckStatus.FAILED)}
    assert wrong == {"operators.inc_on_float"}, "a wrong result is a failure, supported or not"


@pytest.mark.parametrize("error", [StoreUnavailable, StoreTimeout])
async def test_checks_with_connection_errors_are_unknown(error: type[Exception]) -> None:
    class Unreachable(ModelStore):
        async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
            raise error("the server is unreachable")

    report = await run(Unreachable(), only="deletes.*")
    assert {finding.status for finding in report.findings} == {CheckStatus.UNKNOWN}
    assert not report.conforms


async def test_other_errors_are_failures() -> None:
    class Broken(ModelStore):
        async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
            raise KeyError("oops")

    report = await run(Broken(), only="deletes.*")
    assert {finding.status for finding in report.findings} == {CheckStatus.FAILED}


async def test_names_are_unique_and_described() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    assert all(check.description.endswith(".") for check in CHECKS)


def test_command_prints_a_table_and_exits_with_the_result() -> None:
    from mediator.stores.conformance.__main__ import app

    model = "tests.conformance.model_store:ModelStore"
    passed = CliRunner().invoke(app, [model, "--url", "memory:", "--only", "deletes.*"])
    assert passed.exit_code == 0, passed.output
    assert "3 passed, 0 failed" in passed.output
    broken = "tests.conformance.test_conformance_suite:KeepsDropped"
    failed = CliRunner().invoke(app, [broken, "--url", "memory:", "--only", "deletes.*"])
    assert failed.exit_code == 1
    assert "Count" not in failed.output
    assert "count after DELETE" in " ".join(failed.output.split())
    assert CliRunner().invoke(app, ["oracle", "--url", "memory:"]).exit_code == 2


async def test_writers_cancelled_before_they_start_leave_no_coroutine() -> None:
    """The probe's budget may end just then; a coroutine never awaited warns later."""
    started = []

    async def write() -> WriteResult:
        started.append(1)
        return WriteResult(Status.APPLIED)

    with warnings.catch_warnings(record=True, action="always") as caught:
        for is_cancelled in (True, False):
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if is_cancelled else None):
                    await together(*(write() for _ in range(3)))
            assert len(started) == (0 if is_cancelled else 3)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
