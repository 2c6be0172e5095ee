-- Records how far a consumer has read, and removes some consumers that are gone.
-- ARGV: name, consumer, number.

if redis.call('EXISTS', state_key) == 0 then return end
local elapsed = elapse()
redis.call('ZADD', base .. 'consumed:' .. name, ARGV[3], ARGV[2])
redis.call('ZADD', base .. 'seen:' .. name, whole(elapsed), ARGV[2])
local gone = redis.call('ZRANGEBYSCORE', base .. 'seen:' .. name, '-inf', whole(elapsed - LIVE_MS),
  'LIMIT', 0, FORGOTTEN)
for _, consumer in ipairs(gone) do forget(consumer) end
