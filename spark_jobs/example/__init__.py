"""The worked example of a kind."""
