"""The process from which Spark forks its Python workers, with the modules of tasks imported."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path


def forget_archives() -> None:
    """Import PySpark from its installation, not from the archives in it.

    Spark puts its archives first on the path: PySpark, Py4J, and a JAR. Before each task a worker
    invalidates the caches of all importers; an archive's importer then reads its list of files,
    which costs a quarter of a second of processor time in all.
    """
    installed = {Path(entry, "pyspark") for entry in sys.path}
    for entry in tuple(sys.path):
        path = Path(entry)
        if path.is_file() and not installed.isdisjoint(path.parents):
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)


if __name__ == "__main__":
    forget_archives()
    for name in ("numba", "pandas", "pyarrow.compute", "pyarrow.parquet"):
        import_module(name)
    # A worker collects garbage after each task; frozen objects, shared by all workers, are skipped.
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
