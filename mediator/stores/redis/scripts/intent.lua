-- Sets a write intent on records, present or absent, removes it, or only reads it.
-- KEYS: class prefix, claims of the class. ARGV: action ('lock', 'unlock', 'join', 'look' or 'redo'),
-- intent, TTL of a tombstone (ms), redo record that 'lock' stores (or ''), number of versions, their
-- names..., number of unique constraints, their names..., ids... 'join' removes the intent from records
-- that its applied write did not touch. The redo record and the reservations are removed with the
-- intent. A record that is fenced against the intent does not take it.
-- Returns for each record its resulting intent, last joint write, creation version and versions;
-- 'redo' also the redo record.

if redis.replicate_commands then redis.replicate_commands() end

local call = redis.call
local action, intent, ttl, redo = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local last, tombstones = 5 + ARGV[5], prefix .. 'tombstones'
local first_id = last + 2 + ARGV[last + 1]
local constraints = { unpack(ARGV, last + 2, first_id - 1) }
local names = { '!m', '!j', '!b', unpack(ARGV, 6, last) }
if action == 'redo' then names[#names + 1] = '!d' end
local fences = action == 'lock' and call('EXISTS', prefix .. 'fences') == 1 and prefix .. 'fences'

local function apply(id)
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, unpack(names))
  if action == 'lock' and not held[1] then
    if fences and call('ZSCORE', fences, #id .. ':' .. id .. intent) then return held end
    if redo == '' then
      call('HSET', key, '!m', intent)
    else
      call('HSET', key, '!m', intent, '!d', redo)
    end
    held[1] = intent
    if not held[3] then
      -- Without the intent its write would count as applied: the tombstone stays until it is removed.
      call('PERSIST', key)
      call('ZADD', tombstones, '+inf', id)
    end
  elseif (action == 'unlock' or action == 'join') and held[1] == intent then
    call('HDEL', key, '!m', '!d')
    if constraints[1] then claims().cancel(constraints, key) end
    if action == 'join' and held[3] then
      call('HSET', key, '!j', intent)
      held[2] = intent
    end
    held[1] = false
    if call('EXISTS', key) == 0 then
      call('ZREM', tombstones, id)
    elseif not held[3] then
      local clock = call('TIME')
      call('PEXPIRE', key, ttl)
      call('ZADD', tombstones, clock[1] * 1000 + math.floor(clock[2] / 1000) + ttl, id)
    end
  end
  return held
end

local results = {}
for i = first_id, #ARGV do results[#results + 1] = apply(ARGV[i]) end
return results
