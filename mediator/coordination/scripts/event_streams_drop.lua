-- Removes a stream with its tuples. ARGV: name. Returns whether there was one.

if redis.call('HDEL', base .. 'streams', name) == 0 then return 0 end
local last = tonumber(redis.call('HGET', state_key, 'last'))
redis.call('HSET', base .. 'dropped', name, whole(last))
if redis.call('HLEN', base .. 'dropped') > MAX_DROPPED then
  local highest = 0
  for _, number in ipairs(redis.call('HVALS', base .. 'dropped')) do
    highest = math.max(highest, tonumber(number))
  end
  redis.call('SET', base .. 'highest', whole(highest))
  redis.call('UNLINK', base .. 'dropped')
end
for _, kind in ipairs({'state', 'tuples', 'records', 'consumed', 'seen'}) do
  redis.call('UNLINK', base .. kind .. ':' .. name)
end
return 1
