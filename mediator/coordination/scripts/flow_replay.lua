-- Queues dead letters again, under their tickets.
-- KEYS: prefix. ARGV: rows of partition value, ticket, body. Returns how many were dead letters.

local ms, replayed = now_ms(), 0
for row = 1, #ARGV, 3 do
  if redis.call('ZREM', base .. 'dead', ARGV[row + 1]) == 1 then
    append(ARGV[row], ARGV[row + 1], ARGV[row + 2], ms)
    replayed = replayed + 1
  end
end
return replayed
