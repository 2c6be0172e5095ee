"""Schemas whose correspondences are known, in the folder that ``PORTOLAN_DATASETS`` names."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.labelled_data import DATASETS
from spark_jobs.matching.schemas.elements import Element
from spark_jobs.matching.schemas.ontologies import Ontology, parse_ontology
from spark_jobs.matching.schemas.profiles import profile_of

__all__ = ["OntologyPair", "TablePair", "anatomy", "synthetic_pair", "table_pairs"]

_CELL: Final = re.compile(r'entity1 rdf:resource="([^"]+)"/>\s*<entity2 rdf:resource="([^"]+)"')


@dataclass(frozen=True, slots=True)
class TablePair:
    """Two tables, and which of their columns correspond."""

    name: str
    left: Sequence[Element]
    right: Sequence[Element]
    truth: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class OntologyPair:
    """Two ontologies, and which of their concepts correspond."""

    left: Ontology
    right: Ontology
    truth: frozenset[tuple[str, str]]


def synthetic_pair() -> TablePair:
    """Return a pair that needs no data set."""
    names = ["first_name", "surname", "street", "city", "postal_code", "telephone"]
    short_names = ["FstNm", "SrNm", "Strt", "Cty", "PstCd", "Tel"]
    rows = [[f"{name[0]}{n * (7 + len(name))}" for name in names] for n in range(50)]
    left, right = ([names, *rows], [short_names, *rows])
    return TablePair(
        "made up",
        _elements(left),
        _elements(right),
        frozenset(zip(names, short_names, strict=True)),
    )


def table_pairs() -> Iterator[TablePair]:
    """Yield the pairs of Valentine."""
    for case in sorted(_folder("valentine").glob("*/*/expected.json")):
        mappings = json.loads(case.read_text("utf-8"))["mappings"]
        truth = frozenset((mapping["source"], mapping["target"]) for mapping in mappings)
        left, right = (
            _elements(_read(case.parent / f"{side}.csv")) for side in ("source", "target")
        )
        yield TablePair(case.parent.name, left, right, truth)


def anatomy() -> OntologyPair | None:
    """Return OAEI's pair of anatomies, if it is installed."""
    folder = _folder("oaei_anatomy")
    if not folder.is_dir():
        return None
    left, right = (
        parse_ontology((folder / f"{name}.owl").read_text("utf-8"), name)
        for name in ("mouse", "human")
    )
    cells = _CELL.findall((folder / "reference.rdf").read_text("utf-8"))
    return OntologyPair(left, right, frozenset(cells))


def _folder(name: str) -> Path:
    return Path(os.environ.get(DATASETS, os.devnull)) / name


def _read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return list(csv.reader(file))


def _elements(rows: Sequence[Sequence[str]]) -> list[Element]:
    elements = []
    for column, name in enumerate(rows[0]):
        texts = [row[column].strip() for row in rows[1:] if column < len(row)]
        values = Counter(filter(None, texts))
        profile = profile_of(len(rows) - 1, values.total(), values)
        elements.append(Element((name,), "string", profile))
    return elements
