-- The beginning of every script of the feed. KEYS[1] is what the keys of the database begin with.

if redis.replicate_commands then redis.replicate_commands() end

local base = KEYS[1]

-- Names the generation of the feed, if it has just begun.
local function begin_generation(proposal)
  redis.call('SET', base .. 'generation', proposal, 'NX')
end

-- Whether a position in a log is before another. Lua's own comparison goes by the server's locale.
local function is_before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The number of the counter at `key`, which only rises; `advance`: the next one. Numbers say what
-- came first, and nothing else: the clock only makes them unlike those of a counter that was lost.
-- Where another server goes on, or the same one with an older state, numbers are skipped that may
-- have been given out since that state: no number from before is above one that is given out, or
-- read, here.
local function next_number(key, advance)
  local last, last_run = unpack(redis.call('HMGET', key, 'number', 'run'))
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  local number = tonumber(last or 0)
  if last_run ~= run then
    number = number + SKIPPED
  elseif not advance then
    return number
  end
  local clock = redis.call('TIME')
  number = math.max(number + 1, clock[1] * 1000000 + clock[2])
  redis.call('HSET', key, 'number', string.format('%.0f', number), 'run', run)
  return number
end

-- The hash of replicas that were retired some periods ago.
local function retired(ago)
  return base .. 'retired:' .. (math.floor(redis.call('TIME')[1] / RETIRED_KEPT_S) - ago)
end

-- Whether the feed has lost changes that a writer appended. A writer that was retired, and is
-- alive, comes back with its count: the feed has lost nothing by retiring it.
local function lacks(writer, count)
  local known = redis.call('HGET', base .. 'appends', writer)
  for ago = 0, 1 do
    if not known then
      known = redis.call('HGET', retired(ago), writer)
      if known then redis.call('HSET', base .. 'appends', writer, known) end
    end
  end
  return tonumber(known or 0) < tonumber(count)
end
