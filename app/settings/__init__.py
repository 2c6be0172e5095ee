"""Settings, one class for each concern, read from the environment; see docs/settings.md."""
