"""Runs every analytic task the same way: forecast, stored stages, all-or-nothing results."""
