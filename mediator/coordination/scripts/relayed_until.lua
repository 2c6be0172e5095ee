-- Returns the server's run id, the run ids for which systems are recovered, and up to when the feed is
-- complete, as published.
-- KEYS: prefix, the recovered systems.

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return { run, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', base .. 'until') }
