"""Where results of runs go, besides their files."""
