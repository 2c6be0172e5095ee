"""What every package stands on: the clock, errors, observations, tasks."""
