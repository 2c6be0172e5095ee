-- What every call begins with: the keys of one part, the time, and whether the part is still what
-- this server's clients left behind.
-- KEYS: see `keys_of`. ARGV: the server's life; '' | 'sure' | 'fresh'; a nonce of 32 hexadecimal
-- digits; keys that may expire in passing; then steps: name, number of arguments, arguments.
-- Answers the time and each step's answer; -1: the part is of another life, and the client is not
-- sure that the one it told is still the server's.

if redis.replicate_commands then redis.replicate_commands() end

local META, HANDED, STALE, MEMBERS, COUNTS, BITS = unpack(KEYS, 1, 6)
local MARKS, WRITES, LEASES, VERSIONS, PURGES, OWED, QUERIES = unpack(KEYS, 7, 13)
local call, steps = redis.call, {}
local life, sure, nonce = ARGV[1], ARGV[2], ARGV[3]

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local lived, uncacheable, saturated, longest =
  unpack(call('HMGET', META, 'life', 'uncacheable', 'saturated', 'longest'))
uncacheable, saturated = tonumber(uncacheable or 0), tonumber(saturated or 0)
longest = tonumber(longest or 0)

if lived and lived ~= life and sure ~= 'sure' then return -1 end
if longest < LIFETIME_US then
  longest = LIFETIME_US
  call('HSET', META, 'longest', longest)
end
-- What was handed out is forgotten. Writes that are known stay pending until they are ended.
local function begin_anew(lost)
  uncacheable, saturated = lost and now + LEASE_US or 0, lost and now + longest or 0
  call('UNLINK', HANDED, STALE, MEMBERS, COUNTS, BITS, VERSIONS, QUERIES)
  call('SETBIT', BITS, FILTER_BITS - 1, 0)
  call('HSET', META, 'life', life, 'incarnation', nonce, 'generation', 1,
    'uncacheable', uncacheable, 'saturated', saturated, 'registrations', now)
end

if lived ~= life then
  call('HDEL', META, 'layout', 'schema') -- the last one may be among what was lost
  begin_anew(sure ~= 'fresh')
end

steps.renew = function()
  begin_anew(true)
  return 1
end

-- Answers what the keys of the part stand for.
steps.layout = function()
  return call('HGET', META, 'layout') or ''
end

-- Arguments: layout before; after; '1': begin anew; schema that registrations have to name. Where
-- no layout is known, copies may rest on any. Answers 0 if the layout before is another one.
steps.adopt = function(first)
  local before = ARGV[first]
  if before ~= steps.layout() then return 0 end
  if ARGV[first + 2] == '1' or (before == '' and call('EXISTS', HANDED) == 1) then begin_anew(true) end
  call('HSET', META, 'layout', ARGV[first + 1], 'schema', ARGV[first + 3])
  return 1
end
