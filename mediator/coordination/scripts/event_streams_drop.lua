-- Removes a stream with its tuples. ARGV: name. Returns whether there was one.

if redis.call('HDEL', base .. 'streams', name) == 0 then return 0 end
local last = tonumber(redis.call('HGET', state_key, 'last'))
if last > tonumber(redis.call('GET', base .. 'highest') or 0) then
  redis.call('SET', base .. 'highest', whole(last))
end
for _, kind in ipairs({'state', 'tuples', 'records', 'consumed', 'seen'}) do
  redis.call('UNLINK', base .. kind .. ':' .. name)
end
return 1
