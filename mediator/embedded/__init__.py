"""Real database servers in a directory of ours; `fleet` runs all of them for a service."""
