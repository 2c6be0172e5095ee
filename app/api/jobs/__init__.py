"""The routes of analytic runs."""
