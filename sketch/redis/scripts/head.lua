-- The head of every call: the keys of one partition, the time, and whether the partition is of this
-- run of the server.
-- KEYS: see PARTITION_KEYS. ARGV: run id; '' | 'confirmed' | 'new' (see `ScriptCall.claim`); a
-- nonce of 32 hexadecimal digits; keys that may expire in passing; then steps: name, number of
-- arguments, arguments.
-- Returns the time and each step's result; -1: the partition is of another run, and the client has
-- not confirmed that the run it names is still the server's.

if redis.replicate_commands then redis.replicate_commands() end

local META, COPIES, STALE, MEMBERS, COUNTS, BITS = unpack(KEYS, 1, 6)
local PENDING, WRITES, LEASES, VERSIONS, PURGES, OWED, QUERIES = unpack(KEYS, 7, 13)
local call = redis.call
-- A count in `pending` is the number of writes of a key, plus these:
local CONCURRENT = 2 ^ 20 -- several of them were pending at once
local CONTENDED = 2 ^ 40 -- a read of the key was refused meanwhile
local run_id, claim, nonce = ARGV[1], ARGV[2], ARGV[3]

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- Until when nothing is cacheable, and until when the filter is full, both after a loss; the longest
-- TTL ever promised; the registration sequence; until when results count as requested (false: they
-- do not), so that no write lease is cached.
local known_run, uncacheable, saturated, longest, registrations, requested = unpack(call('HMGET',
  META, 'run_id', 'uncacheable', 'saturated', 'longest', 'registrations', 'requested'))
uncacheable, saturated = tonumber(uncacheable or 0), tonumber(saturated or 0)
longest, registrations = tonumber(longest or 0), tonumber(registrations or 0)
requested = requested and tonumber(requested)

if known_run and known_run ~= run_id and claim ~= 'confirmed' then return -1 end
if longest < LIFETIME_US then
  longest = LIFETIME_US
  if known_run then call('HSET', META, 'longest', longest) end
end
