"""One module for each revision, in order.

A module never changes once catalogues were created by it. So it copies the tables as they are and
imports nothing of ours. `additive` means that code which does not know the revision can go on
using the catalogue: nothing it reads has changed, and what it writes is still complete.
"""
