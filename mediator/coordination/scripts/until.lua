-- Answers the server's run, what is settled, and up to when the feed is told to be complete.
-- KEYS: prefix, the settled.

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return { run, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', base .. 'until') }
