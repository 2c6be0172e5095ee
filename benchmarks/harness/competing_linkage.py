"""Tasks of anonlink and clkhash, timed inside the process of their own environment.

Called as a script by that environment's interpreter, never imported by ours: it prints one JSON
object. `benchmarks.harness.competitors` calls it.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import Any


def compare(left: str, right: str, threshold: float, cores: int, found: str) -> dict[str, Any]:
    """Find the pairs of two files of vectors (128 bytes each) by their Dice coefficient."""
    import numpy as np  # noqa: PLC0415 - of the competitors' environment
    from anonlink.similarities import dice_coefficient_accelerated  # noqa: PLC0415 - as above
    from bitarray import bitarray  # noqa: PLC0415 - as above

    def read(path: str) -> list[Any]:
        rows = np.load(path)
        arrays = [bitarray() for _ in rows]
        for vector, row in zip(arrays, rows, strict=True):
            vector.frombytes(row.tobytes())
        return arrays

    vectors = read(left), read(right)
    share = -(-len(vectors[0]) // cores)
    slices = [vectors[0][first : first + share] for first in range(0, len(vectors[0]), share)]

    def compare_slice(left_slice: list[Any]) -> Any:
        return dice_coefficient_accelerated((left_slice, vectors[1]), threshold, k=len(vectors[1]))

    global _compare_slice  # noqa: PLW0603 - forked processes inherit it, so that no vector is sent
    _compare_slice = lambda number: compare_slice(slices[number])  # noqa: E731 - as above
    compare_slice(slices[0][:1])
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(len, [[]] * cores))
        started = perf_counter()
        results = (
            list(pool.map(_run, range(len(slices)))) if cores > 1 else [compare_slice(slices[0])]
        )
        seconds = perf_counter() - started
    pairs = [
        (i + number * share, j)
        for number, (_, (lefts, rights)) in enumerate(results)
        for i, j in zip(lefts, rights, strict=True)
    ]
    np.save(found, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    return {"seconds": seconds, "pairs": len(pairs)}


_compare_slice: Any = None


def _run(number: int) -> Any:
    return _compare_slice(number)


def encode(people: str, bits: int, hashes: int) -> dict[str, Any]:
    """Encode people (CSV without a header) with clkhash, on one core."""
    from clkhash import comparators, field_formats, key_derivation, schema  # noqa: PLC0415 - as above
    from clkhash.bloomfilter import stream_bloom_filters  # noqa: PLC0415 - as above

    with open(people, newline="") as file:  # noqa: PTH123 - a separate script
        rows = [tuple(row) for row in csv.reader(file)]
    hashing = field_formats.FieldHashingProperties(
        comparator=comparators.NgramComparison(2),
        strategy=field_formats.BitsPerTokenStrategy(hashes),
        hash_type="doubleHash",
    )
    fields = [field_formats.StringSpec(f"f{number}", hashing) for number in range(len(rows[0]))]
    shape = schema.Schema(fields, bits)
    keys = key_derivation.generate_key_lists(b"a secret of both owners", len(fields))
    started = perf_counter()
    count = sum(1 for _ in stream_bloom_filters(rows, keys, shape))
    return {"seconds": perf_counter() - started, "records": count}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    tasks: dict[str, Callable[..., dict[str, Any]]] = {"compare": compare, "encode": encode}
    print(json.dumps(tasks[arguments.pop("task")](**arguments)))


if __name__ == "__main__":
    main()
