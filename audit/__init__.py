"""What is looked at before a release, beside tests: the dependencies."""
