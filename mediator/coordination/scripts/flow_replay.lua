-- Queues dead letters again, under their tickets.
-- KEYS: prefix. ARGV: rows of values (of all levels), ticket, body. Returns how many were dead letters.

local ms, replayed = now_ms(), 0
local level = tonumber(redis.call('GET', base .. 'level') or 0)
for row = 1, #ARGV, 3 do
  if redis.call('ZREM', base .. 'dead', ARGV[row + 1]) == 1 then
    append(level, ARGV[row], ARGV[row + 1], ARGV[row + 2], ms)
    replayed = replayed + 1
  end
end
return replayed
