"""The process that Spark forks its Python workers from: what tasks import is there already."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path


def forget_archives() -> None:
    """Import PySpark from where it is installed, not from the archives in it.

    Spark puts those before it on the path: PySpark, Py4J, and a JAR. Before each task a worker
    invalidates the caches of all importers; that of an archive reads its whole list of files then,
    a quarter of a second of processor time in all.
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
    # A worker collects garbage after each task, and need not walk what it shares with all others.
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
