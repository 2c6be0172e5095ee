"""The state of a stream of records after a batch, and the directory in which it is committed.

blocks/    the stored records, as blocks
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from spark_jobs.commit_directory import CommitDirectory, StateMismatch
from spark_jobs.linkage.private.comparing import BlockSpan
from spark_jobs.linkage.private.vectors import BitOrder

__all__ = ["BLOCKS_FOLDER", "KeptBlocks", "LinkageCommit", "LinkageDirectory"]

BLOCKS_FOLDER: Final = "blocks"

_FORMAT: Final = 1
"""The version of blocks and commits; other versions cannot read them."""


@dataclass(frozen=True, slots=True)
class KeptBlocks:
    """Stored blocks of records that were cut together.

    Attributes:
        files: Their files, as paths below the directory.
        tier: How often the records have been merged.
        arrived_s: When the latest record arrived, in seconds since the epoch.
    """

    files: tuple[str, ...]
    tier: int
    arrived_s: float
    spans: tuple[BlockSpan, ...]

    @property
    def records(self) -> int:
        return sum(span.records for span in self.spans)


@dataclass(frozen=True, slots=True)
class LinkageCommit:
    """The state after a batch.

    Attributes:
        batch: The id of the batch; -1 before the first one.
        attempt: The id of its execution.
        job: The fingerprint of the job.
        arrived_s: When its records arrived, by a clock that never goes back.
        frequency: The number of records of the first batch with each position set; and
        ordered: the number of these records. The order of positions follows from both.
        kept: The stored blocks.
        records: Records of all batches;
        pairs: pairs that were compared, or excluded by their lengths; and
        links: their links.
        has_results: Whether this batch has links.
    """

    batch: int = -1
    attempt: str = ""
    job: str = ""
    arrived_s: float = 0.0
    frequency: tuple[int, ...] = ()
    ordered: int = 0
    kept: tuple[KeptBlocks, ...] = ()
    records: int = 0
    pairs: int = 0
    links: int = 0
    has_results: bool = False

    @property
    def files(self) -> frozenset[str]:
        return frozenset(path for blocks in self.kept for path in blocks.files)

    @property
    def spans(self) -> list[BlockSpan]:
        return [span for blocks in self.kept for span in blocks.spans]

    @property
    def order(self) -> BitOrder | None:
        """The order in which all records are rewritten; None: there are no records yet."""
        if not self.frequency:
            return None
        return BitOrder(np.array(self.frequency, dtype=np.int64), self.ordered)

    def to_json(self) -> dict[str, Any]:
        kept = [
            [blocks.files, blocks.tier, blocks.arrived_s, list(map(astuple, blocks.spans))]
            for blocks in self.kept
        ]
        return {
            "format": _FORMAT,
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "kept": kept,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> LinkageCommit:
        if document.pop("format", None) != _FORMAT:
            raise StateMismatch(f"the state is of another version than {_FORMAT}")
        kept = tuple(
            KeptBlocks(tuple(files), tier, arrived_s, tuple(BlockSpan(*span) for span in spans))
            for files, tier, arrived_s, spans in document.pop("kept")
        )
        return cls(**{**document, "frequency": tuple(document["frequency"])}, kept=kept)


class LinkageDirectory(CommitDirectory[LinkageCommit]):
    """The state of a stream of records."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, LinkageCommit, BLOCKS_FOLDER)
