-- Counts on, and returns the number.
-- KEYS: the count.

return next_number(KEYS[1], true)
