-- The beginning of every script of what rules of admission control pause. KEYS[1] is what its keys begin with.
--
-- pauses    hash: by the id of what is paused, version and number of the rule, for how long it has paused
--           it (ms), and until when (ms, by the server's clock)

if redis.replicate_commands then redis.replicate_commands() end

local base = KEYS[1]

local function now_ms()
  local clock = redis.call('TIME')
  return clock[1] * 1000 + math.floor(clock[2] / 1000)
end

local function write_pause(id, rule, ms)
  local pause = string.format('%s %.0f %.0f', rule, ms, now_ms() + ms)
  redis.call('HSET', base .. 'pauses', id, pause)
end

-- How long something is still paused (ms), and the rule; nil: it is not. If that is longer than it was paused
-- for, the server's clock was set back.
local function paused_ms(id)
  local pause = redis.call('HGET', base .. 'pauses', id) or ''
  local rule, most, until_ms = string.match(pause, '^(%d+ %d+) (%d+) (%d+)$')
  if not rule then return nil end
  local left = until_ms - now_ms()
  if left <= 0 then return nil end
  if left <= tonumber(most) then return left, rule end
  write_pause(id, rule, most)
  return tonumber(most), rule
end

-- Pauses something, or changes for how long it is paused; returns 0 if it was paused before, else 1.
local function pause(id, version, rule, ms)
  local before = paused_ms(id)
  write_pause(id, version .. ' ' .. rule, ms)
  return before and 0 or 1
end
