-- The beginning of every script of subjects that rules of admission control pause. KEYS[1] is the prefix of their keys.
--
-- pauses    hash, by the id of the subject: version and number of the rule, duration of the pause (ms), and its
--           end (ms, by the server's clock)

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

-- Returns for how long a subject is still paused (ms), and the rule; nil: it is not. If that exceeds the duration
-- of the pause, the server's clock was set back.
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

-- Pauses a subject, or changes the duration of its pause; returns 0 if it was paused before, else 1.
local function pause(id, version, rule, ms)
  local before = paused_ms(id)
  write_pause(id, version .. ' ' .. rule, ms)
  return before and 0 or 1
end
