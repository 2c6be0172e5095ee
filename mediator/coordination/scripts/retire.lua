-- Forgets replicas that have been looked after, unless they have come back meanwhile; their counts
-- are kept for a time, as one that lives may come back later.
-- KEYS: prefix, the writers. ARGV: rows of system, replica, what it had told when it was looked at.

for at = 1, #ARGV, 3 do
  local replica, field = ARGV[at + 1], ARGV[at] .. '/' .. ARGV[at + 1]
  if redis.call('HEXISTS', KEYS[2], replica) == 0
    and redis.call('HGET', base .. 'until', field) == ARGV[at + 2] then
    redis.call('HDEL', base .. 'until', field)
    local count = redis.call('HGET', base .. 'brought', field)
    if count then
      redis.call('HSET', retired(0), field, count)
      redis.call('EXPIRE', retired(0), 2 * RETIRED_KEPT_S)
    end
    redis.call('HDEL', base .. 'brought', field)
  end
end
