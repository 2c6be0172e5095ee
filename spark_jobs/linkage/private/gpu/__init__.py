"""Comparing on a GPU of NVIDIA and the cores of its machine (docs/papers/pprl.md, 2.4)."""
