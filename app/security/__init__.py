"""Authentication, rate limits and authorisation of requests, on both ports."""
