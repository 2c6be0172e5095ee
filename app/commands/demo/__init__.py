"""The demo: the newspaper on embedded stores, placed, loaded, measured and explained."""
