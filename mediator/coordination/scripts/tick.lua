-- Returns the next number.
-- KEYS: the counter.

return next_number(KEYS[1], true)
