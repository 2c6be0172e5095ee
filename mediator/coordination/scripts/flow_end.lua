-- Ends a batch that its worker has executed.
-- KEYS: prefix. ARGV: token, number, 1 if messages are held for their turn, how many counts; counts as
-- name, number; then rows of position, time, ticket, outcome, document.
-- Returns {how many ended beyond the latency bound}; {}: the lease is not held.

local number, ordered = ARGV[2], ARGV[3] == '1'
if redis.call('GET', base .. 'lease:' .. number) ~= ARGV[1] then return {} end
local late = 0
local first = 5 + 2 * tonumber(ARGV[4])
for at = 5, first - 1, 2 do count(ARGV[at], ARGV[at + 1]) end
for row = first, #ARGV, 5 do
  local position, ms, ticket, outcome, document = unpack(ARGV, row, row + 4)
  if ordered then
    redis.call('HSET', base .. 'held', position, table.concat({ms, ticket, outcome, document}, ' '))
  else
    late = late + complete(position, tonumber(ms), ticket, outcome, document)
  end
end
redis.call('DEL', base .. 'partition:' .. number, base .. 'lease:' .. number)
redis.call('ZREM', base .. 'running', number)
redis.call('HDEL', base .. 'attempts', number)
return {late}
