"""Comparing on a GPU of NVIDIA, beside the cores of its machine (docs/papers/pprl.md, 2.4)."""
