"""Settings, one class per concern, read from the environment; see docs/settings.md."""
