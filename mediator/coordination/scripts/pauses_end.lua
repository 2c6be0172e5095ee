-- Ends the pauses by rules of versions before one. ARGV: that version.

local pauses = redis.call('HGETALL', base .. 'pauses')
for at = 1, #pauses, 2 do
  if tonumber(string.match(pauses[at + 1], '^%d+')) < tonumber(ARGV[1]) then
    redis.call('HDEL', base .. 'pauses', pauses[at])
  end
end
