"""Comparing on a GPU of NVIDIA, beside the cores of its machine (papers: pprl, 2.4)."""
