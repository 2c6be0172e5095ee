"""The background ontologies of the schema matching benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.harness.known_anatomy import known_concepts

HEART = {"label": "heart", "synonyms": ["cor"], "ancestors": {"UBERON:1": 1, "UBERON:0": 2}}


def test_concepts_are_read_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTOLAN_COMPETITORS", str(tmp_path))
    assert list(known_concepts()) == []
    terms = {
        "UBERON:2": {**HEART, "deprecated": False},
        "UBERON:3": {**HEART, "deprecated": True},
        "GO:4": {**HEART, "deprecated": False},
    }
    data = tmp_path / "lib/python3.11/site-packages/cellxgene_ontology_guide/data"
    data.mkdir(parents=True)
    with pa.CompressedOutputStream(str(data / "UBERON-ontology-v1.json.zst"), "zstd") as file:
        file.write(json.dumps(terms).encode())
    (heart,) = known_concepts()
    assert (heart.identifier, heart.labels, heart.preferred) == ("UBERON:2", ("heart", "cor"), 1)
    assert heart.parents == ["UBERON:1"]
