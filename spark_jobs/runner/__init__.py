"""One way to run every analytic task: forecast, kept stages, results whole or not at all."""
