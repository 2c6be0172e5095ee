"""Uberon and the Cell Ontology, as packaged for Python: names, synonyms and parents of concepts.

The package is in the competitors' environment (`make competitors`), and is read, not imported. It
has no cross-references to other ontologies, so it contains no reference alignment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.harness.competitors import packages
from spark_jobs.matching.schemas.ontologies import Concept

__all__ = ["known_concepts"]

_DATA: Final = Path("cellxgene_ontology_guide", "data")
_ONTOLOGIES: Final = ("UBERON", "CL")


def known_concepts() -> Iterator[Concept]:
    """Yield the concepts that are not deprecated; none if the package is not installed."""
    for folder in packages():
        for name in _ONTOLOGIES:
            for path in sorted((folder / _DATA).glob(f"{name}-ontology-*.json.zst")):
                yield from _concepts(_read(path), f"{name}:")


def _read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as file:
        terms: Mapping[str, Mapping[str, Any]] = json.loads(file.read())
    return terms


def _concepts(terms: Mapping[str, Mapping[str, Any]], prefix: str) -> Iterator[Concept]:
    for identifier, term in terms.items():
        if term["deprecated"] or not identifier.startswith(prefix):
            continue
        labels = tuple(dict.fromkeys((term["label"], *term.get("synonyms", ()))))
        parents = [parent for parent, distance in term["ancestors"].items() if distance == 1]
        yield Concept(identifier, labels, 1, parents)
