"""The service as a process: its composition, its ports, its children, its end."""
