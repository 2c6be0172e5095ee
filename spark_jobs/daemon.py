"""The process that Spark forks its Python workers from: what tasks import is there already."""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark import daemon

if __name__ == "__main__":
    for name in ("numba", "pandas", "pyarrow.compute", "pyarrow.parquet"):
        import_module(name)
    # A worker collects garbage after each task, and need not walk what it shares with all others.
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]
