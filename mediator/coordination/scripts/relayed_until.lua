-- Returns the server's run id, in which runs systems are recovered, and up to when the feed is
-- published to be complete.
-- KEYS: prefix, the recovered.

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
return { run, redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', base .. 'until') }
