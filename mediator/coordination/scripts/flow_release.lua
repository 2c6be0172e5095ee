-- Ends the held message that is next in order; the lease lasts while another one follows.
-- KEYS: prefix. ARGV: token, milliseconds of the lease, position, time, ticket, outcome, document;
-- counts as name, number.
-- Returns {1 if it ended beyond the latency bound, else 0}; {}: the lease is not held.

local lease = base .. 'lease:out'
if redis.call('GET', lease) ~= ARGV[1] then return {} end
if redis.call('HDEL', base .. 'held', ARGV[3]) == 0 then return {} end
redis.call('SET', base .. 'sent', ARGV[3])
if redis.call('HEXISTS', base .. 'held', string.format('%.0f', ARGV[3] + 1)) == 1 then
  redis.call('SET', lease, ARGV[1], 'PX', ARGV[2])
else
  -- Another worker may send the next one.
  redis.call('DEL', lease)
end
for at = 8, #ARGV, 2 do count(ARGV[at], ARGV[at + 1]) end
return {complete(ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7])}
