-- Lets marks of settled changes expire: a relay that read them before may still come with them.
-- KEYS: prefix. ARGV: rows of group of an object, version.

local period = math.floor(redis.call('TIME')[1] / MARKS_KEPT_S)
local marks = base .. 'marks'
local expiring = marks .. ':' .. period
for at = 1, #ARGV, 2 do
  if redis.call('HGET', marks, ARGV[at]) == ARGV[at + 1] then
    redis.call('HDEL', marks, ARGV[at])
    redis.call('HSET', expiring, ARGV[at], ARGV[at + 1])
  end
end
redis.call('EXPIRE', expiring, 3 * MARKS_KEPT_S)
