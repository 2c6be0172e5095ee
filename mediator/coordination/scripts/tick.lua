-- Counts on, and answers the number.
-- KEYS: the count.

return counted(KEYS[1], true)
