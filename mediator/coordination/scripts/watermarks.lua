-- Returns the tick and all states of a database's copies, as of one instant.
-- KEYS: prefix, the ticks.

return { next_number(KEYS[2], false), redis.call('HGETALL', base .. 'view') }
