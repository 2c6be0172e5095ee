"""The server's sketch in the memory of one process."""
