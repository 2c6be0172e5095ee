"""Comparison on an NVIDIA GPU and the cores of its machine (docs/papers/pprl.md, 2.4)."""
