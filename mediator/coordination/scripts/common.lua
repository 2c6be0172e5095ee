-- The beginning of every script of the feed. KEYS[1] is the prefix of the database's keys.

if redis.replicate_commands then redis.replicate_commands() end

local base = KEYS[1]

-- Whether a position in a log is before another. Lua's own comparison depends on the server's locale.
local function is_before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The run id of the server: another run may have an older state, and a clock that is behind.
local function server_run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
end

-- Names the generation of the feed if it is new: no id of it was given out before.
local function begin_generation(proposal)
  if redis.call('SET', base .. 'generation', proposal, 'NX') then
    redis.call('SET', base .. 'run', server_run())
  end
end

-- The milliseconds of the last id that a stream has given out; 0: the stream does not exist.
local function last_ms(stream)
  if redis.call('EXISTS', stream) == 0 then return 0 end
  local facts = redis.call('XINFO', 'STREAM', stream)
  for at = 1, #facts, 2 do
    if facts[at] == 'last-generated-id' then return tonumber(string.match(facts[at + 1], '%d+')) end
  end
end

-- Advances the ids of all partitions when another run of the server takes over. Followers may have
-- read ids that it has lost: further changes must get higher ones, or followers would never see them.
-- Its clock may be behind, and its last id may be old or missing: the later of the two is the best
-- estimate of the ids given out.
local function skip_lost_ids()
  local run = server_run()
  if redis.call('GET', base .. 'run') == run then return end
  redis.call('SET', base .. 'run', run)
  local clock = redis.call('TIME')
  local last = clock[1] * 1000 + math.floor(clock[2] / 1000)
  for partition = 0, PARTITIONS - 1 do last = math.max(last, last_ms(base .. partition)) end
  local id = string.format('%.0f-0', last + SKIPPED / 1000)
  for partition = 0, PARTITIONS - 1 do
    local stream = base .. partition
    redis.call('XGROUP', 'CREATE', stream, 'new', '$', 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', stream, 'new')
    redis.call('XSETID', stream, id)
  end
end

-- The run id is read only before the first change: reading it takes longer than appending a change.
local has_skipped = false

-- Appends a change to the stream of a partition.
local function append_change(partition, class, document)
  if not has_skipped then
    skip_lost_ids()
    has_skipped = true
  end
  redis.call('XADD', base .. partition, '*', 'k', class, 'c', document)
end

-- The number of the counter at `key`, which only rises; with `advance`, the next one. Numbers have an
-- order and no other meaning: the clock only makes them differ from those of a counter that was lost.
-- When another server takes over, or the same one with an older state, the numbers that may have been
-- given out since that state are skipped: no former number is above one given out, or read, here.
local function next_number(key, advance)
  local last, last_run = unpack(redis.call('HMGET', key, 'number', 'run'))
  local run = server_run()
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

-- The hash of replicas that were retired `ago` periods ago.
local function retired(ago)
  return base .. 'retired:' .. (math.floor(redis.call('TIME')[1] / RETIRED_RETENTION_S) - ago)
end

-- Whether the feed has lost changes that a writer appended. A retired writer that is still alive gets
-- its count back, as retiring it has lost no changes.
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
