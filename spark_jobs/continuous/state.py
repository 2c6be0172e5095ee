"""Rows stored for later batches: one folder for each batch, merged as in an LSM tree.

A folder is named after its first and last batch. The numbers alone determine the rows that a batch
finds, so a repeated batch, for instance after a crash, finds the same rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from mediator.continuous.statement import UNTIL
from spark_jobs.paths import literal_path

__all__ = ["KeptRows"]

_FANOUT: Final = 8
"""Folders of similar size that are merged into one."""


class _Folder(NamedTuple):
    first: int
    last: int
    path: Path

    @property
    def level(self) -> int:
        """Its size as a power of the fan-out, by its range of batch numbers.

        Batches without rows count, so a folder of few nonempty batches can have a high level.
        """
        level, batches = 0, self.last - self.first + 1
        while batches >= _FANOUT ** (level + 1):
            level += 1
        return level


class KeptRows:
    """Rows with the slides at which they are valid, until these have passed."""

    def __init__(self, session: SparkSession, directory: Path) -> None:
        self._session, self._directory = session, directory
        self._schema: StructType | None = None

    def keep(self, number: int, rows: DataFrame) -> DataFrame:
        """Write the rows of a batch; return them as read from the disk."""
        path = self._path(number, number)
        rows.write.mode("overwrite").parquet(str(path))
        self._schema = rows.schema
        return self._read([path], rows.schema)

    def before(self, number: int, first_slide: int, schema: StructType) -> DataFrame | None:
        """Return the rows of earlier batches that are still valid at a slide, if any."""
        folders = list(self._live(number, first_slide))
        folders = self._merge(folders, first_slide, schema)
        if not folders:
            return None
        rows = self._read([folder.path for folder in folders], schema)
        return rows.where(f.col(UNTIL) > first_slide)

    def _live(self, number: int, first_slide: int) -> Iterator[_Folder]:
        """Yield the folders of earlier batches; remove expired and merged folders."""
        covered = -1
        for folder in sorted(self._folders(), key=lambda at: (at.first, -at.last)):
            if folder.last >= number:
                continue
            if folder.last <= covered or self._latest(folder.path) <= first_slide:
                shutil.rmtree(folder.path)
                continue
            covered = folder.last
            yield folder

    def _folders(self) -> Iterator[_Folder]:
        if not self._directory.exists():
            return
        for path in self._directory.iterdir():
            first, _, last = path.name.partition("-")
            if last.isdigit():
                yield _Folder(int(first), int(last), path)

    def _merge(self, folders: list[_Folder], first_slide: int, schema: StructType) -> list[_Folder]:
        """Merge the latest folders while enough of them are about as large as the last one."""
        while similar := _similar_folders(folders):
            first, last = similar[0].first, similar[-1].last
            target = self._path(first, last)
            unfinished = target.with_name(f"{target.name}.unfinished")
            rows = self._read([folder.path for folder in similar], schema)
            live = rows.where(f.col(UNTIL) > first_slide).coalesce(1)
            live.write.mode("overwrite").parquet(str(unfinished))
            unfinished.rename(target)
            for folder in similar:
                shutil.rmtree(folder.path)
            folders = [*folders[: -len(similar)], _Folder(first, last, target)]
        return folders

    def _latest(self, path: Path) -> int:
        """Return the latest end of validity of a folder's rows, by Parquet statistics."""
        latest = -(2**63)
        for file in path.glob("*.parquet"):
            metadata = pq.read_metadata(file)
            column = metadata.schema.names.index(UNTIL)
            for group in range(metadata.num_row_groups):
                statistics = metadata.row_group(group).column(column).statistics
                if statistics is not None and statistics.has_min_max:
                    latest = max(latest, statistics.max)
        return latest

    def _read(self, paths: Sequence[Path], schema: StructType) -> DataFrame:
        literal = [literal_path(str(path)) for path in paths]
        return self._session.read.schema(schema).parquet(*literal)

    def _path(self, first: int, last: int) -> Path:
        return self._directory / f"{first:09}-{last:09}"


def _similar_folders(folders: Sequence[_Folder]) -> list[_Folder]:
    """Return the latest folders that are no larger than the last one, if enough for a merge.

    They are adjacent: a larger folder between them would be in the range of the merged folder, and
    seem to be merged, too.
    """
    level = folders[-1].level if folders else 0
    similar = list(takewhile(lambda folder: folder.level <= level, reversed(folders)))
    return similar[::-1] if len(similar) >= _FANOUT else []
