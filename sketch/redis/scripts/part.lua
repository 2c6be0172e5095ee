-- What every call begins with: the keys of one part, the time, and whether the part is still what
-- this server's clients left behind.
-- KEYS: see `keys_of`. ARGV: the server's life; '' | 'sure' | 'fresh'; a nonce of 32 hexadecimal
-- digits; keys that may expire in passing; then steps: name, number of arguments, arguments.
-- Answers the time and each step's answer; -1: the part is of another life, and the client is not
-- sure that the one it told is still the server's.

if redis.replicate_commands then redis.replicate_commands() end

local META, HANDED, STALE, MEMBERS, COUNTS, BITS = unpack(KEYS, 1, 6)
local MARKS, WRITES, LEASES, VERSIONS, PURGES, OWED, QUERIES = unpack(KEYS, 7, 13)
local call = redis.call
local WANTED = 2 ^ 40 -- in `marks`: somebody wanted to read the key while a write of it was pending
local life, sure, nonce = ARGV[1], ARGV[2], ARGV[3]

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local lived, uncacheable, saturated, longest, registrations, asked = unpack(
  call('HMGET', META, 'life', 'uncacheable', 'saturated', 'longest', 'registrations', 'asked'))
uncacheable, saturated = tonumber(uncacheable or 0), tonumber(saturated or 0)
longest, registrations = tonumber(longest or 0), tonumber(registrations or 0)
asked = asked and tonumber(asked) -- until when no mark may linger; false: nobody asked for results

if lived and lived ~= life and sure ~= 'sure' then return -1 end
if longest < LIFETIME_US then
  longest = LIFETIME_US
  call('HSET', META, 'longest', longest)
end
