-- Fences a record against the writes of a token: from now on, none of them takes effect.
-- KEYS: class prefix. ARGV: id, token, TTL of the fence (ms), names of the versions...
-- Returns the versions of the record.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local fences = prefix .. 'fences'
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
call('ZREMRANGEBYSCORE', fences, '-inf', now)
-- The length of the id distinguishes pairs with the same concatenation.
call('ZADD', fences, now + ARGV[3], #ARGV[1] .. ':' .. ARGV[1] .. ARGV[2])
call('PEXPIRE', fences, ARGV[3])
return call('HMGET', prefix .. 'r:' .. ARGV[1], unpack(ARGV, 4))
