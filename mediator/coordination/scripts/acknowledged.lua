-- Lets versions of acknowledged changes expire, but only after a while: a relay that has read the
-- changes can still append them.
-- KEYS: prefix. ARGV: rows of group of an object, version.

local period = math.floor(redis.call('TIME')[1] / VERSION_RETENTION_S)
local versions = base .. 'versions'
local expiring = versions .. ':' .. period
for at = 1, #ARGV, 2 do
  -- A later change of the group keeps its version.
  if redis.call('HGET', versions, ARGV[at]) == ARGV[at + 1] then
    redis.call('HDEL', versions, ARGV[at])
    redis.call('HSET', expiring, ARGV[at], ARGV[at + 1])
  end
end
redis.call('EXPIRE', expiring, 3 * VERSION_RETENTION_S)
