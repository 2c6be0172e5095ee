-- Answers the time and all states of a database's copies, as of one instant.
-- KEYS: prefix.

local now = redis.call('TIME')
return { now[1], now[2], redis.call('HGETALL', base .. 'primary') }
