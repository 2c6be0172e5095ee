"""The admin pages: what serves what, and why; see docs/pages.md."""
