"""Sources of the inputs of runs."""
