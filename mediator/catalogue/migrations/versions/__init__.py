"""One module for each revision, in order.

A module never changes once catalogues were created by it. So it copies the tables as they are and
imports none of our code. `additive` means that code without the revision can continue to use the
catalogue: everything it reads is unchanged, and its writes are still complete.
"""
