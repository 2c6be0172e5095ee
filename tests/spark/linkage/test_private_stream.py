"""Private linkage of records that arrive: the links of all batches are those of brute force."""

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
"""A record as it arrives: its owner, its id and its encoding."""


@dataclass
class ManualClock:
    now_s: float = 1_000.0

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


class Killed(Exception):
    """A process dies at a moment that a test chooses."""


def arrivals(seed: int, **counts: int) -> list[Arrival]:
    """So many records of some owners in random order."""
    drawn = [
        (owner, id_, bits)
        for number, (owner, count) in enumerate(counts.items())
        for id_, bits in records(count, 10 * seed + number, families=8).items()
    ]
    return Random(seed).sample(drawn, len(drawn))


def of_owners(arrived: Sequence[Arrival]) -> dict[str, dict[str, int]]:
    owners: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for owner, id_, bits in sorted(arrived):
        owners[owner][id_] = bits
    return owners


def spec(owners: str = "abc", **given: Any) -> PrivateSpec:
    sources = {name: {"file": name, "format": "parquet"} for name in owners}
    return PrivateSpec.parse({"parties": sources, "threshold": 0.8, "mode": "stream", **given})


def links_in(state: Path) -> list[Link]:
    files = sorted((state / "results").glob("*/*"))
    return [
        tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist()
    ]


@dataclass
class Feed:
    """Batches that are handed to the linkage one by one, as Spark does."""

    spark: SparkSession
    state: Path
    spec: PrivateSpec
    retention_s: float | None = None
    clock: Clock | None = None

    def process(self, batch: int, arrived: Sequence[Arrival]) -> LinkageCommit:
        """Process a batch in a process of its own, as far as files show it."""
        directory = LinkageDirectory(self.state)
        with directory.locked():
            linkage = LinkageStream(
                directory, self.spark, self.spec, self.retention_s, self.clock or SystemClock()
            )
            return linkage.process(batch, lambda: self._frame(arrived))

    def _frame(self, arrived: Sequence[Arrival]) -> DataFrame:
        frames = {
            owner: self.spark.createDataFrame(
                [(id_, bits.to_bytes(BITS // 8)) for id_, bits in of.items()],
                "id string, clk binary",
            )
            for owner, of in of_owners(arrived).items()
        }
        return unite(frames, "clk", self.spec.owners)

    def check(self, commit: LinkageCommit) -> None:
        """Check that there is nothing on the disk but what a commit has."""
        found = (self.state / "blocks").rglob("*")
        assert {str(each.relative_to(self.state)) for each in found} == commit.files
        assert not list((self.state / "staging").glob("*"))
        assert len(list((self.state / "commits").iterdir())) <= 2
        assert len(links_in(self.state)) == commit.links


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, few of which are merged, so that there are several of everything."""
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
    # Later records have bits at positions where no record of the first batch has one.
    arrived[: cuts[0]] = [(owner, id_, bits & LOW_HALF) for owner, id_, bits in arrived[: cuts[0]]]
    threshold = draw.choice(["2/3", "0.8", "1"]) if seed > 1 else "0.8"
    filters = draw.choice([[], ["length"], ["length", "prefix", "position"]])
    feed = Feed(spark, tmp_path, spec(threshold=threshold, filters=filters))
    faults = draw.sample(FAULTS, len(FAULTS))
    for batch, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(arrived)], strict=True)):
        commit = process_with(faults[batch], feed, batch, arrived[first:last])
        feed.check(commit)
        assert feed.process(batch, []) == commit  # it is committed, so it is not executed again
    parties = of_owners(arrived)
    expected = brute(Fraction(threshold), **parties)
    assert expected
    assert Counter(links_in(tmp_path)) == Counter(expected)
    sizes = [len(of) for of in parties.values()]
    assert commit.pairs == (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    assert commit.records == sum(each.records for each in commit.kept) == len(arrived)
    assert any(each.tier for each in commit.kept)
    assert not any(commit.frequency[: BITS // 2])


def process_with(
    fault: Callable[[pytest.MonkeyPatch], None] | None,
    feed: Feed,
    batch: int,
    arrived: Sequence[Arrival],
) -> LinkageCommit:
    """Process a batch; and once more, if the first execution is killed."""
    if fault is not None:
        with pytest.MonkeyPatch.context() as patched:
            fault(patched)
            with pytest.raises(Killed):
                feed.process(batch, arrived)
    return feed.process(batch, arrived)


@pytest.mark.usefixtures("small")
def test_an_id_that_arrives_again_has_one_more_encoding(
    spark: SparkSession, tmp_path: Path
) -> None:
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
    kept, links = [], []
    for batch, now_s in enumerate((0, 10, 60, -10, 115, 131, 161, 216)):
        clock.now_s = 1_000.0 + now_s
        owner = "ab"[batch % 2]
        commit = feed.process(batch, [(owner, f"{owner}{batch}", same)])
        kept.append(sum(each.records for each in commit.kept))
        links.append(commit.links)
        feed.check(commit)
    # A clock that is set back is that of the batch before. Batches 0 and 1 were merged, and so were
    # 2 and 3; but not 4 and 5, which arrived in different quarters of the retention.
    assert kept == [1, 2, 3, 4, 3, 4, 3, 3]
    assert links == [0, 1, 2, 4, 5, 7, 8, 9]


@pytest.mark.usefixtures("small")
def test_a_state_of_another_job_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    first = Feed(spark, tmp_path, spec("ab")).process(0, [("a", "x", 7)])
    for other in (spec("ab", threshold=0.9), spec("ac"), spec("ab", bits="bloom")):
        with pytest.raises(StateMismatch, match="a job with other owners"):
            Feed(spark, tmp_path, other).process(1, [("a", "x", 7)])
    same = spec("ab", threshold="4/5", filters=[])
    assert Feed(spark, tmp_path, same).process(0, []) == first


def document(folder: Path) -> dict[str, Any]:
    """A job over directories of three formats; the name of one is a pattern, too."""
    sources: dict[str, dict[str, Any]] = {
        "a": {"file": f"{folder}/a", "format": "parquet"},
        "b": {"file": f"{folder}/b [1]", "format": "json", "rename": {"person": "id"}},
        "c": {"file": f"{folder}/c", "format": "csv"},
    }
    for each in sources.values():
        Path(each["file"]).mkdir()
    return {
        "kind": "linkage.private",
        "spec": {"parties": sources, "threshold": 0.8, "mode": "stream"},
    }


def write(job: Mapping[str, Any], name: str, arrived: Sequence[Arrival], time_s: float) -> None:
    """Make a file for each owner appear whole in its directory, with a time that tells its turn."""
    for owner, of in of_owners(arrived).items():
        source = job["spec"]["parties"][owner]
        folder, id_name = Path(source["file"]), next(iter(source.get("rename", ["id"])))
        hidden = folder / f".{name}"
        raw = {id_: bits.to_bytes(BITS // 8) for id_, bits in of.items()}
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
    """Link what there is."""
    job, directory = parse_job(document, stream=True), LinkageDirectory(state)
    with directory.locked():
        linkage = LinkageStream(directory, spark, job.spec)
        end(start(linkage, job.inputs, files, lambda _: None, {"availableNow": True}))
        return directory.latest()


@pytest.mark.timeout(900)
def test_files_of_owners_are_linked_and_one_that_cannot_be_ends_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    state, job = tmp_path / "state", document(tmp_path)
    arrived, days_s = arrivals(5, a=20, b=20, c=20), 30 * 86_400
    write(job, "one *", arrived[:20], 10 * days_s)
    write(job, "two", arrived[20:40], 11 * days_s)
    assert run(spark, state, job).batch == 1
    # Its time is earlier than those of files that were linked.
    write(job, "three", arrived[40:], days_s)
    commit = run(spark, state, job)
    expected = brute(T8, **of_owners(arrived))
    assert Counter(links_in(state)) == Counter(expected)
    assert commit.links == len(expected) > 0

    bad = Path(job["spec"]["parties"]["b"]["file"], "bad")
    bad.write_bytes(orjson.dumps({"person": "short", "clk": base64.b64encode(b"\1" * 16).decode()}))
    lengths = "different lengths. 256 bits: all that came before; 128 bits: b, id 'short'"
    with pytest.raises(Failed, match=lengths):
        run(spark, state, job)
    assert LinkageDirectory(state).latest() == commit
    assert len(links_in(state)) == commit.links
    # The batch is repeated with the same files, one of which is as it should be now.
    (_, id_, bits), *_ = [each for each in arrived if each[0] == "a"]
    arrived.append(("b", "short", bits))
    write(job, "bad", arrived[-1:], 12 * days_s)
    assert run(spark, state, job).batch == commit.batch + 1
    found = Counter(links_in(state))
    assert found == Counter(brute(T8, **of_owners(arrived)))
    assert found["a", id_, "b", "short", 1.0] == 1

    write(job, "four", [("a", "binary", bits)], 13 * days_s)
    text = pa.table({"clk": [base64.b64encode(bytes(32)).decode()], "id": ["text"]})
    pq.write_table(text, Path(job["spec"]["parties"]["a"]["file"], "five"))
    with pytest.raises(Failed, match="columns of different types"):
        run(spark, state, job, files=2)

    Path(job["spec"]["parties"]["c"]["file"]).rename(tmp_path / "moved")
    with pytest.raises(InputUnfit, match="c: there is no directory"):
        run(spark, state, job)


@pytest.mark.timeout(900)  # a cluster of Spark starts, on a machine that may be busy
async def test_the_command_goes_on_after_an_executor_and_the_driver_are_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, state = documented(tmp_path), tmp_path / "state"
    arrived = arrivals(6, ours=24, theirs=36)
    for batch in range(4):
        write(job, f"{batch}", arrived[15 * batch : 15 * batch + 15], batch + 1)
    file = tmp_path / "study.json"
    file.write_bytes(orjson.dumps(job))
    command = ("job", "stream", file, state, "--files", "1")
    async with command_on_cluster(command, tmp_path, {}) as driver:

        async def committed(batch: int) -> None:
            while LinkageDirectory(state).latest().batch < batch:
                assert driver.returncode is None, (tmp_path / "log").read_text()
                await asyncio.sleep(0.02)

        await committed(0)
        executors(driver.pid)[0].kill()
        await committed(1)
    commit = await asyncio.to_thread(run, spark, state, job)
    assert commit.records == len(arrived)
    assert Counter(links_in(state)) == Counter(brute(T8, **of_owners(arrived)))


def documented(folder: Path) -> dict[str, Any]:
    """The job of docs/linkage.md, over directories that are here."""
    (text,) = re.findall(r"## Streams of records.*?```json\n(.*?)```", PAGE, re.DOTALL)
    job: dict[str, Any] = orjson.loads(text)
    for source in job["spec"]["parties"].values():
        source["file"] = f"{folder}/{source['file']}"
        Path(source["file"]).mkdir()
    return job
