"""Private linkage of a stream of records: all batches together give brute force's links."""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from mediator.base.clock import Clock, SystemClock
from spark_jobs.commit_directory import StateMismatch
from spark_jobs.linkage.private import comparing, stream
from spark_jobs.linkage.private.records import unite
from spark_jobs.linkage.private.spec import PrivateSpec
from spark_jobs.linkage.private.stream import LinkageStream
from spark_jobs.linkage.private.stream_files import start
from spark_jobs.linkage.private.stream_state import LinkageCommit, LinkageDirectory
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.port import InputUnfit
from spark_jobs.streaming_queries import Failed, end
from tests.spark.cluster import command_on_cluster, executors
from tests.spark.linkage.test_private_linkage import BITS, T8, Link, brute, records

PAGE = (Path(__file__).parents[3] / "docs" / "linkage.md").read_text()
LOW_HALF = 2 ** (BITS // 2) - 1

Arrival = tuple[str, str, int]
"""An arriving record: its owner, its id and its encoding."""


@dataclass
class ManualClock:
    now_s: float = 1_000.0

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


class Killed(Exception):
    """A process is killed at a chosen point."""


def arrivals(seed: int, **counts: int) -> list[Arrival]:
    """Return the given number of records for each owner, in random order."""
    generated = [
        (owner, id_, bits)
        for number, (owner, count) in enumerate(counts.items())
        for id_, bits in records(count, 10 * seed + number, families=8).items()
    ]
    return Random(seed).sample(generated, len(generated))


def by_owner(arrived: Sequence[Arrival]) -> dict[str, dict[str, int]]:
    owners: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for owner, id_, bits in sorted(arrived):
        owners[owner][id_] = bits
    return owners


def spec(owners: str = "abc", **members: Any) -> PrivateSpec:
    sources = {name: {"file": name, "format": "parquet"} for name in owners}
    return PrivateSpec.parse({"parties": sources, "threshold": 0.8, "mode": "stream", **members})


def links_in(state: Path) -> list[Link]:
    files = sorted((state / "results").glob("*/*"))
    return [
        tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist()
    ]


@dataclass
class Feed:
    """Hands batches to the linkage one by one, as Spark does."""

    spark: SparkSession
    state: Path
    spec: PrivateSpec
    retention_s: float | None = None
    clock: Clock | None = None

    def process(self, batch: int, arrived: Sequence[Arrival]) -> LinkageCommit:
        """Process a batch with fresh state from files, like a new process."""
        directory = LinkageDirectory(self.state)
        with directory.locked():
            linkage = LinkageStream(
                directory, self.spark, self.spec, self.retention_s, self.clock or SystemClock()
            )
            return linkage.process(batch, lambda: self._frame(arrived))

    def _frame(self, arrived: Sequence[Arrival]) -> DataFrame:
        frames = {
            owner: self.spark.createDataFrame(
                [(id_, bits.to_bytes(BITS // 8)) for id_, bits in encodings.items()],
                "id string, clk binary",
            )
            for owner, encodings in by_owner(arrived).items()
        }
        return unite(frames, "clk", self.spec.owners)

    def check(self, commit: LinkageCommit) -> None:
        """Check that the disk holds exactly the files and links of a commit."""
        paths = (self.state / "blocks").rglob("*")
        assert {str(path.relative_to(self.state)) for path in paths} == commit.files
        assert not list((self.state / "staging").glob("*"))
        assert len(list((self.state / "commits").iterdir())) <= 2
        assert len(links_in(self.state)) == commit.links


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small blocks and a low merge fan-in, so that there are several of everything."""
    monkeypatch.setattr(comparing, "BLOCK", 16)
    monkeypatch.setattr(comparing, "TASK_PAIRS", 3_000)
    monkeypatch.setattr(stream, "_FAN", 2)


def before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(LinkageDirectory, "commit", killed)


def before_links_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(LinkageDirectory, "publish", killed)


def before_anything_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(LinkageDirectory, "_remove", killed)


FAULTS = [None, before_the_commit, before_links_are_published, before_anything_is_removed, None]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.large) for n in (2, 3, 4))]
)
def test_batches_in_any_order_find_the_pairs_of_brute_force(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    draw = Random(seed)
    arrived = arrivals(seed, a=40, b=50, c=30)
    cuts = sorted(draw.sample(range(1, len(arrived)), len(FAULTS) - 1))
    # Only later records have bits in the upper half.
    arrived[: cuts[0]] = [(owner, id_, bits & LOW_HALF) for owner, id_, bits in arrived[: cuts[0]]]
    threshold = draw.choice(["2/3", "0.8", "1"]) if seed > 1 else "0.8"
    filters = draw.choice([[], ["length"], ["length", "prefix", "position"]])
    feed = Feed(spark, tmp_path, spec(threshold=threshold, filters=filters))
    faults = draw.sample(FAULTS, len(FAULTS))
    for batch, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(arrived)], strict=True)):
        commit = process_with(faults[batch], feed, batch, arrived[first:last])
        feed.check(commit)
        assert feed.process(batch, []) == commit  # a committed batch is not executed again
    parties = by_owner(arrived)
    expected = brute(Fraction(threshold), **parties)
    assert expected
    assert Counter(links_in(tmp_path)) == Counter(expected)
    sizes = [len(encodings) for encodings in parties.values()]
    assert commit.pairs == (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    assert commit.records == sum(block.records for block in commit.kept) == len(arrived)
    assert any(block.tier for block in commit.kept)
    assert not any(commit.frequency[: BITS // 2])


def process_with(
    fault: Callable[[pytest.MonkeyPatch], None] | None,
    feed: Feed,
    batch: int,
    arrived: Sequence[Arrival],
) -> LinkageCommit:
    """Process a batch, and retry it if a fault kills the first execution."""
    if fault is not None:
        with pytest.MonkeyPatch.context() as patched:
            fault(patched)
            with pytest.raises(Killed):
                feed.process(batch, arrived)
    return feed.process(batch, arrived)


@pytest.mark.usefixtures("small")
def test_an_id_that_arrives_twice_has_two_encodings(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, spec("ab"))
    one, other = 2**60 - 1, (2**60 - 1) << 9
    feed.process(0, [("a", "x", one), ("b", "y", other)])
    feed.process(1, [("a", "x", other)])
    commit = feed.process(2, [("b", "y", one)])
    assert links_in(tmp_path) == [("a", "x", "b", "y", 1.0)] * 2
    assert commit.records == 4


@pytest.mark.usefixtures("small")
def test_records_are_dropped_when_they_are_older_than_the_retention(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock()
    feed = Feed(spark, tmp_path, spec("ab"), 100.0, clock)
    same = 2**60 - 1
    record_counts, link_counts = [], []
    for batch, now_s in enumerate((0, 10, 60, -10, 115, 131, 161, 216)):
        clock.now_s = 1_000.0 + now_s
        owner = "ab"[batch % 2]
        commit = feed.process(batch, [(owner, f"{owner}{batch}", same)])
        record_counts.append(sum(block.records for block in commit.kept))
        link_counts.append(commit.links)
        feed.check(commit)
    # If the clock is set back, the previous batch's time counts. Batches 0 and 1 were merged, as
    # were 2 and 3, but not 4 and 5: they arrived in different quarters of the retention.
    assert record_counts == [1, 2, 3, 4, 3, 4, 3, 3]
    assert link_counts == [0, 1, 2, 4, 5, 7, 8, 9]


@pytest.mark.usefixtures("small")
def test_the_state_of_another_job_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    first = Feed(spark, tmp_path, spec("ab")).process(0, [("a", "x", 7)])
    for other in (spec("ab", threshold=0.9), spec("ac"), spec("ab", bits="bloom")):
        with pytest.raises(StateMismatch, match="a job with other owners"):
            Feed(spark, tmp_path, other).process(1, [("a", "x", 7)])
    same = spec("ab", threshold="4/5", filters=[])
    assert Feed(spark, tmp_path, same).process(0, []) == first


def document(folder: Path) -> dict[str, Any]:
    """Return a job over directories of three formats; one name is also a glob pattern."""
    sources: dict[str, dict[str, Any]] = {
        "a": {"file": f"{folder}/a", "format": "parquet"},
        "b": {"file": f"{folder}/b [1]", "format": "json", "rename": {"person": "id"}},
        "c": {"file": f"{folder}/c", "format": "csv"},
    }
    for source in sources.values():
        Path(source["file"]).mkdir()
    return {
        "kind": "linkage.private",
        "spec": {"parties": sources, "threshold": 0.8, "mode": "stream"},
    }


def write(job: Mapping[str, Any], name: str, arrived: Sequence[Arrival], time_s: float) -> None:
    """Add a file for each owner atomically; its modification time gives its order."""
    for owner, encodings in by_owner(arrived).items():
        source = job["spec"]["parties"][owner]
        folder, id_name = Path(source["file"]), next(iter(source.get("rename", ["id"])))
        hidden = folder / f".{name}"
        raw = {id_: bits.to_bytes(BITS // 8) for id_, bits in encodings.items()}
        text = {id_: base64.b64encode(bits).decode() for id_, bits in raw.items()}
        match source["format"]:
            case "parquet":
                pq.write_table(pa.table({"clk": list(raw.values()), "id": list(raw)}), hidden)
            case "json":
                lines = [orjson.dumps({id_name: id_, "clk": clk}) for id_, clk in text.items()]
                hidden.write_bytes(b"\n".join(lines))
            case "csv":
                rows = ["clk,age,id", *(f"{clk},5,{id_}" for id_, clk in text.items())]
                hidden.write_text("\n".join(rows))
        os.utime(hidden, (time_s, time_s))
        hidden.rename(folder / name)


def run(
    spark: SparkSession, state: Path, document: Mapping[str, Any], files: int = 1
) -> LinkageCommit:
    """Link all available files."""
    job, directory = parse_job(document, stream=True), LinkageDirectory(state)
    with directory.locked():
        linkage = LinkageStream(directory, spark, job.spec)
        end(start(linkage, job.inputs, files, lambda _: None, {"availableNow": True}))
        return directory.latest()


@pytest.mark.timeout(900)
def test_owners_files_are_linked_and_an_unfit_file_fails_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    state, job = tmp_path / "state", document(tmp_path)
    arrived, days_s = arrivals(5, a=20, b=20, c=20), 30 * 86_400
    write(job, "one *", arrived[:20], 10 * days_s)
    write(job, "two", arrived[20:40], 11 * days_s)
    assert run(spark, state, job).batch == 1
    # This file is older than the linked files.
    write(job, "three", arrived[40:], days_s)
    commit = run(spark, state, job)
    expected = brute(T8, **by_owner(arrived))
    assert Counter(links_in(state)) == Counter(expected)
    assert commit.links == len(expected) > 0

    bad = Path(job["spec"]["parties"]["b"]["file"], "bad")
    bad.write_bytes(orjson.dumps({"person": "short", "clk": base64.b64encode(b"\1" * 16).decode()}))
    lengths = "different lengths. 256 bits: all that came before; 128 bits: b, id 'short'"
    with pytest.raises(Failed, match=lengths):
        run(spark, state, job)
    assert LinkageDirectory(state).latest() == commit
    assert len(links_in(state)) == commit.links
    # The batch is repeated with the same files, one of which has been corrected.
    (_, id_, bits), *_ = [arrival for arrival in arrived if arrival[0] == "a"]
    arrived.append(("b", "short", bits))
    write(job, "bad", arrived[-1:], 12 * days_s)
    assert run(spark, state, job).batch == commit.batch + 1
    links = Counter(links_in(state))
    assert links == Counter(brute(T8, **by_owner(arrived)))
    assert links["a", id_, "b", "short", 1.0] == 1

    write(job, "four", [("a", "binary", bits)], 13 * days_s)
    text = pa.table({"clk": [base64.b64encode(bytes(32)).decode()], "id": ["text"]})
    pq.write_table(text, Path(job["spec"]["parties"]["a"]["file"], "five"))
    with pytest.raises(Failed, match="columns of different types"):
        run(spark, state, job, files=2)

    Path(job["spec"]["parties"]["c"]["file"]).rename(tmp_path / "moved")
    with pytest.raises(InputUnfit, match="c: there is no directory"):
        run(spark, state, job)


@pytest.mark.timeout(900)  # a Spark cluster starts, perhaps on a busy machine
async def test_the_command_resumes_after_an_executor_and_the_driver_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, state = documented_job(tmp_path), tmp_path / "state"
    arrived = arrivals(6, ours=24, theirs=36)
    for batch in range(4):
        write(job, f"{batch}", arrived[15 * batch : 15 * batch + 15], batch + 1)
    file = tmp_path / "study.json"
    file.write_bytes(orjson.dumps(job))
    command = ("job", "stream", file, state, "--files", "1")
    async with command_on_cluster(command, tmp_path, {}) as driver:

        async def wait_for_commit(batch: int) -> None:
            while LinkageDirectory(state).latest().batch < batch:
                assert driver.returncode is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.02)

        await wait_for_commit(0)
        executors(driver.pid)[0].kill()
        await wait_for_commit(1)
    commit = await asyncio.to_thread(run, spark, state, job)
    assert commit.records == len(arrived)
    assert Counter(links_in(state)) == Counter(brute(T8, **by_owner(arrived)))


def documented_job(folder: Path) -> dict[str, Any]:
    """Return the job of docs/linkage.md, over empty directories in `folder`."""
    (text,) = re.findall(r"## Streams of records.*?```json\n(.*?)```", PAGE, re.DOTALL)
    job: dict[str, Any] = orjson.loads(text)
    for source in job["spec"]["parties"].values():
        source["file"] = f"{folder}/{source['file']}"
        Path(source["file"]).mkdir()
    return job
