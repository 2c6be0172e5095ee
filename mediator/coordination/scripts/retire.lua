-- Removes replicas whose writes have been swept, unless they have registered again meanwhile; their
-- counts of appends are kept for a while, as a replica that is still alive can come back.
-- KEYS: prefix, the writers. ARGV: rows of system, replica, the tick it had published before the sweep.

for at = 1, #ARGV, 3 do
  local replica, writer = ARGV[at + 1], ARGV[at] .. '/' .. ARGV[at + 1]
  if redis.call('HEXISTS', KEYS[2], replica) == 0
    and redis.call('HGET', base .. 'until', writer) == ARGV[at + 2] then
    redis.call('HDEL', base .. 'until', writer)
    local count = redis.call('HGET', base .. 'appends', writer)
    if count then
      redis.call('HSET', retired(0), writer, count)
      redis.call('EXPIRE', retired(0), 2 * RETIRED_RETENTION_S)
    end
    redis.call('HDEL', base .. 'appends', writer)
  end
end
