"""The service as a process: composition, ports, child processes and shutdown."""
