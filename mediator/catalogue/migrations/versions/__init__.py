"""One module for each revision, in order.

What is in a module holds for ever: catalogues were made by it. So it copies the tables as they were
and imports nothing of ours. `additive` says that code which does not know the revision can go on
using the catalogue: nothing it reads has changed, and what it writes is still complete.
"""
