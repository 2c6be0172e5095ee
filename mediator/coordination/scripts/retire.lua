-- Forgets replicas of a system that have told nothing for a while; their counts are kept for a
-- time, as one that lives comes back.
-- KEYS: prefix. ARGV: what their fields begin with, time before which they told last, one to keep.

local told = redis.call('HGETALL', base .. 'until')
for at = 1, #told, 2 do
  local field = told[at]
  if string.sub(field, 1, #ARGV[1]) == ARGV[1] and field ~= ARGV[3]
    and tonumber(told[at + 1]) < tonumber(ARGV[2]) then
    redis.call('HDEL', base .. 'until', field)
    local count = redis.call('HGET', base .. 'brought', field)
    if count then
      redis.call('HSET', retired(0), field, count)
      redis.call('EXPIRE', retired(0), 2 * RETIRED_KEPT_S)
    end
    redis.call('HDEL', base .. 'brought', field)
  end
end
