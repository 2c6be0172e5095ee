"""Where the inputs of runs come from."""
