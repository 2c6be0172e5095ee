-- Ends messages of a batch that its worker has executed; the last one ends the batch.
-- KEYS: prefix. ARGV: token, number, 1 if messages are held for their turn, the number of counts; counts as
-- name, number, which are added with the last message; then rows of position, time, ticket, outcome, document.
-- Returns {how many ended beyond the latency bound}; {}: the lease is not held.

local number, ordered = ARGV[2], ARGV[3] == '1'
if redis.call('GET', base .. 'lease:' .. number) ~= ARGV[1] then return {} end
local partition = base .. 'partition:' .. number
local late = 0
local first = 5 + 2 * tonumber(ARGV[4])
for row = first, #ARGV, 5 do
  local position, ms, ticket, outcome, document = unpack(ARGV, row, row + 4)
  local head = redis.call('LINDEX', partition, 0)
  -- Rows come in the order of the partition. A row other than its head has ended before: the driver resends a
  -- call without a reply.
  if head and string.match(head, '^%d+') == position then
    redis.call('LPOP', partition)
    if ordered then
      redis.call('HSET', base .. 'held', position, table.concat({ms, ticket, outcome, document}, ' '))
    else
      late = late + complete(position, tonumber(ms), ticket, outcome, document)
    end
  end
end
if redis.call('EXISTS', partition) == 0 then
  for at = 5, first - 1, 2 do count(ARGV[at], ARGV[at + 1]) end
  redis.call('DEL', base .. 'lease:' .. number)
  redis.call('ZREM', base .. 'running', number)
  redis.call('HDEL', base .. 'attempts', number)
end
return {late}
