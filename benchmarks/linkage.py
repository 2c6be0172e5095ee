"""Open linkage: accuracy without labels or configuration, time against Splink, and over HTTP.

Nothing is configured: rules and comparisons are proposed from the unseen data; threshold and
clustering are the defaults. The truth is only used for evaluation. For time all three get the same
blocks and comparisons of synthetic people, and estimate, compare and cluster. Portolan's time is
that of a whole run: it also reads a file, prepares the records, forecasts and stores every stage;
Splink gets prepared records, in memory. Over HTTP the time is from POST until the result can be
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql import SparkSession
from splink import DuckDBAPI, SparkAPI
from splink.backends.spark import similarity_jar_location

from app.commands.demo.failed import Failed
from app.commands.demo.service import Service, serving_here, succeed
from app.settings.main import MediatorSettings
from benchmarks.harness.labelled_data import (
    DataSet,
    catalogues,
    data_sets,
    products,
    synthetic,
)
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.spark_session import opened_session
from benchmarks.harness.splink_baseline import run_splink
from benchmarks.harness.synthetic_people import people
from benchmarks.harness.whole_run import WholeRun, whole_run
from benchmarks.harness.worker_process import joined_worker
from spark_jobs.linkage.open.evaluate import evaluation, label_counts
from spark_jobs.linkage.open.in_process.comparing import comparison_columns
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.session import LazySession

__all__ = ["run"]

_QUICK_PEOPLE: Final = 1_000
_PEOPLE: Final = 50_000
_QUICK_PRODUCTS: Final = 300
_PRODUCTS: Final = 1_000
_MANY_PEOPLE: Final = 500_000
_SIZES_OVER_HTTP: Final = ((300, 10.0), (1_000, 20.0))
"""Records of each of two classes, and the bar for the seconds to link them over HTTP."""
_CLASSES: Final = ("left", "right")
_POLL_S: Final = 0.1
_BAR_SPLINK: Final = 1.5
_SPEC: Final[Mapping[str, Any]] = {
    "inputs": {"people": {"file": "people.csv"}},
    "blocking": [["phone"], ["surname", "date_of_birth"], ["given_name", "surname"], ["street"]],
    "comparisons": [
        {"columns": ["given_name"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["surname"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["date_of_birth"], "levels": ["exact", {"levenshtein": 1}]},
        {"columns": ["street"], "levels": ["exact", {"jaro_winkler": 0.9}]},
        {"columns": ["city"], "levels": ["exact"], "term_frequency": True},
        {"columns": ["phone"], "levels": ["exact", {"levenshtein": 1}]},
    ],
    "clustering": "components",
}


async def run(options: Options) -> Measured:
    measured = await asyncio.to_thread(_measure, options)
    sizes = _SIZES_OVER_HTTP[:1] if options.quick else _SIZES_OVER_HTTP
    results = [await _over_http(records, bar, options) for records, bar in sizes]
    return Measured([*measured.results, *results])


def _measure(options: Options) -> Measured:
    all_data = [synthetic(_QUICK_PEOPLE, options.seed), *([] if options.quick else data_sets())]
    results: list[Result] = []
    with _session() as spark:
        for data in all_data:
            results += _accuracy(spark, data, options)
        size = _QUICK_PRODUCTS if options.quick else _PRODUCTS
        catalogue = products(size, options.seed)
        for data in (catalogue, *(() if options.quick else catalogues())):
            results += _catalogue(data, options)
        size = _QUICK_PEOPLE if options.quick else _PEOPLE
        results += _times(spark, synthetic(size, options.seed), options)
        if not options.quick:
            results.append(_end_to_end(spark, synthetic(_MANY_PEOPLE, options.seed), options))
    return Measured(results)


@contextmanager
def _session() -> Iterator[SparkSession]:
    """Open Spark with the jar of Splink's string comparisons."""
    with TemporaryDirectory() as checkpoints:  # Splink writes some
        conf = {
            "spark.driver.memory": "6g",
            "spark.jars": similarity_jar_location(),
            "spark.checkpoint.dir": checkpoints,
        }
        with opened_session(conf) as session:
            yield session


def _accuracy(spark: SparkSession, data: DataSet, options: Options) -> Iterator[Result]:
    options.log(f"{data.name}: linked without configuration")
    with TemporaryDirectory() as folder:
        run = _run(data, data.spec, Path(folder), LazySession.of(spark))
    evaluation = _reports(run)["evaluation"]
    yield Result(f"pairwise F1, {data.name}", "", evaluation["pairwise"]["f1"], bar=data.bar)
    yield Result(f"B³ F1, {data.name}", "", evaluation["b3"]["f1"])
    yield Result(f"blocking recall, {data.name}", "", evaluation["blocking_recall"])


def _catalogue(data: DataSet, options: Options) -> Iterator[Result]:
    options.log(f"{data.name}: linked without configuration")
    with TemporaryDirectory() as folder:
        run = _run(data, data.spec, Path(folder), LazySession(_no_spark))
    pairwise, trust = _reports(run)["evaluation"]["pairwise"], _reports(run)["trust"]
    yield Result(f"precision, {data.name}", "", pairwise["precision"])
    yield Result(
        f"precision estimated without labels, {data.name}", "", trust["estimated_precision"]
    )
    yield Result(f"recall, {data.name}", "", pairwise["recall"])
    yield Result(f"pairwise F1, {data.name}", "", pairwise["f1"], bar=data.bar)
    yield Result(f"end to end, {data.name}", "s", run.seconds)


def _times(spark: SparkSession, data: DataSet, options: Options) -> Iterator[Result]:
    options.log(f"{data.name}: Portolan, then Splink on DuckDB and on Spark")
    spec = OpenSpec.parse(_SPEC)
    with TemporaryDirectory() as folder:
        ours = _run(data, {**_SPEC, "truth": "entity"}, Path(folder), LazySession(_no_spark))
        records = pq.read_table(ours.directory.frame("records"))
    table = comparison_columns(spark.createDataFrame(records), spec)
    duck = run_splink(table.toArrow(), spec, DuckDBAPI())
    api: Any = SparkAPI
    other = run_splink(table, spec, api(spark_session=spark))
    name = f"{data.name}, end to end"
    yield Result(
        f"{name}, against Splink on DuckDB",
        "s",
        ours.seconds,
        duck.seconds,
        bar=_BAR_SPLINK,
        small_is_good=True,
    )
    yield Result(
        f"{name}, against Splink on Spark", "s", ours.seconds, other.seconds, small_is_good=True
    )
    theirs, f1 = _f1(records, duck.clusters), _reports(ours)["evaluation"]["pairwise"]["f1"]
    yield Result(f"pairwise F1, {name}", "", f1, theirs, bar=1.0)


def _run(data: DataSet, spec: Mapping[str, Any], folder: Path, session: LazySession) -> WholeRun:
    """Execute a run on files."""
    inputs = {name: {"file": str(folder / f"{name}.csv")} for name in data.tables}
    for name, table in data.tables.items():
        csv.write_csv(table, folder / f"{name}.csv")
    return whole_run("linkage.open", {**spec, "inputs": inputs}, folder / "run", session)


def _reports(run: WholeRun) -> Mapping[str, Any]:
    return run.directory.stages["clusters"].reports


def _no_spark() -> NoReturn:
    raise Failed("a run that fits one process started Spark")


def _f1(records: pa.Table, clusters: Mapping[int, Any]) -> float:
    cluster_ids = [str(clusters[row]) for row in records.column("row").to_pylist()]
    counts = label_counts(records.append_column("cluster", pa.array(cluster_ids)))
    report = evaluation(counts, 0, within=True)
    f1: float = report["pairwise"]["f1"]
    return f1


def _end_to_end(spark: SparkSession, data: DataSet, options: Options) -> Result:
    options.log(f"{data.name}: end to end")
    with TemporaryDirectory() as folder:
        seconds = _run(data, _SPEC, Path(folder), LazySession.of(spark)).seconds
    return Result(f"{data.name}, {sum(map(len, data.tables.values())):,} records", "s", seconds)


async def _over_http(records: int, bar: float, options: Options) -> Result:
    """Link two classes by a worker that has just started, in a service on embedded servers."""
    options.log(f"{records:,} records and {records:,} over HTTP")
    with TemporaryDirectory(prefix="portolan-bench-") as scratch:
        settings = MediatorSettings(embedded=True, data_dir=Path(scratch))
        async with serving_here(settings) as (_, service), joined_worker(Path(scratch)):
            await _fill(service, records, options.seed)
            started = perf_counter()
            inputs = {name: {"class": name} for name in _CLASSES}
            job = {"kind": "linkage.open", "spec": {"inputs": inputs, "zero_config": True}}
            run = await succeed(service.data.post("study/jobs", json=job))
            while run["state"] in {"queued", "forecasting", "running"}:
                await asyncio.sleep(_POLL_S)
                run = await succeed(service.data.get(f"study/jobs/{run['id']}"))
            if run["state"] != "done":
                raise Failed(f"the run ended as {run['state']}: {run['reasons']}")
            await succeed(service.data.get(f"study/jobs/{run['id']}/results"))
            seconds = perf_counter() - started
    return Result(f"{records:,} x {records:,} over HTTP", "s", seconds, bar=bar, small_is_good=True)


async def _fill(service: Service, records: int, seed: int) -> None:
    """Fill two classes with the same people, spelt differently."""
    everyone = list(people(records, 2, seed))
    fields = [name for name in everyone[0] if name not in {"id", "entity"}]
    classes = {
        name: {"fields": {field: {"type": "string"} for field in fields}} for name in _CLASSES
    }
    await service.set_schema("study", {"classes": classes})
    objects: dict[str, dict[str, Any]] = {name: {} for name in _CLASSES}
    for person in everyone:
        id_ = str(person["id"])
        side = _CLASSES[id_.endswith("-0")]
        if len(objects[side]) < records:
            objects[side][id_] = {name: person[name] for name in fields if person[name]}
    await service.create("study", objects)
