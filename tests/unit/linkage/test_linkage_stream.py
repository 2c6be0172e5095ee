"""Streams of records, without Spark: the compared blocks, and refused jobs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.commands.job import job
from spark_jobs.linkage.private import comparing
from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.comparing import BlockSpan, tasks_between
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.stream_state import KeptBlocks, LinkageCommit
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.specification import SpecInvalid

BITS = 64
SPEC: dict[str, Any] = {
    "left": {"file": "a", "format": "parquet"},
    "right": {"file": "b", "format": "json"},
    "threshold": 0.8,
}
BATCH = {"kind": "linkage.private", "spec": SPEC}
STREAM: dict[str, Any] = {"kind": "linkage.private", "spec": {**SPEC, "mode": "stream"}}

ranges = st.tuples(st.integers(1, BITS), st.integers(1, BITS)).map(sorted)
blocks = st.tuples(st.integers(0, 2), st.integers(1, 9), ranges, st.booleans())


@given(st.lists(blocks, max_size=12), st.sampled_from([2, 40, 1000]))
def test_two_blocks_are_compared_once_unless_both_are_kept(
    drawn_blocks: list[Any], max_pairs: int
) -> None:
    spans = [
        BlockSpan(str(number), party, records, low, high)
        for number, (party, records, (low, high), _) in enumerate(drawn_blocks)
    ]
    kept = {str(number) for number, (*_, is_kept) in enumerate(drawn_blocks) if is_kept}
    limits = ThresholdTables.of(Fraction(4, 5), BITS)
    comparison = BlockComparison(limits, np.zeros(0, dtype=np.int64))
    expected = Counter(
        frozenset((left.block, right.block))
        for left, right in combinations(spans, 2)
        if left.party != right.party
        and not {left.block, right.block} <= kept
        and right.high >= limits.low[left.low]
        and right.low <= limits.high[left.high]
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparing, "TASK_PAIRS", max_pairs)
        tasks = tasks_between(spans, comparison, kept)
    compared = Counter(
        frozenset((task.span.block, partner.block)) for task in tasks for partner in task.partners
    )
    assert compared == expected
    assert all(task.pairs <= max_pairs or len(task.partners) == 1 for task in tasks)


def test_a_commit_is_read_as_it_was_written() -> None:
    spans = (BlockSpan("0-a-0-0-0", 1, 5, 2, 7), BlockSpan("0-a-0-0-1", 2, 1, 3, 3))
    kept = (KeptBlocks(("blocks/0-a-0-0.parquet",), 1, 12.5, spans),)
    commit = LinkageCommit(3, "a", "job", 13.0, (0, 4, 1), 6, kept, 6, 5, 4, has_results=True)
    assert LinkageCommit.from_json(orjson.loads(orjson.dumps(commit.to_json()))) == commit


@pytest.mark.parametrize(
    ("document", "stream", "pointer"),
    [
        (STREAM, False, "/spec/mode"),
        (BATCH, True, "/spec/mode"),
        ({"kind": "linkage.private", "spec": {**SPEC, "mode": "follow"}}, True, "/spec/mode"),
        (
            {
                "kind": "example.count",
                "spec": {"records": {"file": "people.csv"}, "field": "city"},
            },
            True,
            "/spec/mode",
        ),
        ({**STREAM, "spec": {**STREAM["spec"], "top_k": 2}}, True, "/spec/top_k"),
        ({**STREAM, "spec": {**STREAM["spec"], "one_to_one": True}}, True, "/spec/one_to_one"),
        ({**STREAM, "spec": {**STREAM["spec"], "left": {"class": "people"}}}, True, "/spec/left"),
        ({**STREAM, "limits": {"pairs": 5}}, True, "/limits"),
    ],
)
def test_jobs_with_an_unfit_mode_or_members_are_refused(
    document: Any, stream: bool, pointer: str
) -> None:
    with pytest.raises(SpecInvalid) as error:
        parse_job(document, stream=stream)
    assert error.value.pointer == pointer


@pytest.mark.parametrize(
    ("document", "arguments", "sentence"),
    [
        (STREAM, ("run", "--dry-run"), "/spec/mode: a run ends, and a stream does not"),
        (BATCH, ("stream", "state"), "/spec/mode: a job of linkage.private is expected whose mode"),
    ],
)
def test_a_command_reports_a_job_that_it_cannot_execute(
    tmp_path: Path, document: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(orjson.dumps(document))
    command, *options = arguments
    result = CliRunner().invoke(job, [command, str(file), *options])
    assert result.exit_code == 1
    assert sentence in " ".join(result.output.split())


def test_spark_connect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTOLAN_SPARK", "sc://127.0.0.1:1")
    file = tmp_path / "job.json"
    file.write_bytes(orjson.dumps(STREAM))
    result = CliRunner().invoke(job, ["stream", str(file), str(tmp_path / "state")])
    assert result.exit_code == 1
    assert "streams of records need a driver of this process" in " ".join(result.output.split())
    assert not (tmp_path / "state").exists()
