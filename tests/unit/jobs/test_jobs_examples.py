"""The example of each kind of job."""

from __future__ import annotations

import pytest

from spark_jobs.kinds import example_of, find_kind, kind_names
from spark_jobs.runner.specification import SpecInvalid


@pytest.mark.parametrize("name", kind_names())
def test_every_kind_has_a_valid_example(name: str) -> None:
    job = example_of(name)
    assert job["kind"] == name
    kind = find_kind(name)
    assert kind.inputs(kind.specification.parse(job["spec"]))


def test_an_unknown_kind_has_no_example() -> None:
    with pytest.raises(SpecInvalid):
        example_of("example.nothing")
