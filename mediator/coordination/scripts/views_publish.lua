-- Publishes the changes of a database's views.
-- KEYS: prefix, lease. ARGV: token, sequence before, position ('' if unchanged), a random number, limit
-- of deltas, and of their bytes; then for each view: id, state ('' if unchanged), delta ('' for none),
-- number of rows, and these as row and count.
-- Returns 1; -1: no lease, or another sequence. A repeated call has no further effect.

if redis.replicate_commands then redis.replicate_commands() end

local base, sequence = KEYS[1], tonumber(ARGV[2])

-- The id of the next delta in a stream. If the server continues with an older state, the random number
-- makes it differ from that of a lost delta, after which followers continue.
local function next_id(stream)
  local clock = redis.call('TIME')
  local ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
  local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if last then ms = math.max(ms, string.match(last[1], '%d+') + 1) end
  return string.format('%.0f-', ms) .. ARGV[4]
end

-- Removes the oldest deltas beyond the limits after one was added. The last one stays, whatever its
-- size: results name it.
local function trim(stream, view, added)
  local bytes = redis.call('HINCRBY', base .. 'delta_bytes', view, added)
  local count, removed = redis.call('XLEN', stream), 0
  while count > 1 and (count > tonumber(ARGV[5]) or bytes - removed > tonumber(ARGV[6])) do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    removed = removed + #oldest[2][4]
    redis.call('XDEL', stream, oldest[1])
    count = count - 1
  end
  if removed > 0 then redis.call('HINCRBY', base .. 'delta_bytes', view, -removed) end
end

if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local present = tonumber(redis.call('HGET', base .. 'published', 'sequence') or 0)
if present == sequence + 1 then return 1 end
if present ~= sequence then return -1 end
redis.call('HSET', base .. 'published', 'sequence', sequence + 1)
if ARGV[3] ~= '' then redis.call('HSET', base .. 'published', 'position', ARGV[3]) end
local at = 7
while at <= #ARGV do
  local view, state, delta, count = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  local exists = redis.call('HEXISTS', base .. 'views', view) == 1
  local rows = base .. 'rows:' .. view
  if exists and state ~= '' then redis.call('HSET', base .. 'states', view, state) end
  if exists and delta ~= '' then
    local stream = base .. 'deltas:' .. view
    redis.call('XADD', stream, next_id(stream), 'position', ARGV[3], 'rows', delta)
    trim(stream, view, #delta)
  end
  for row = at, at + 2 * count - 1, 2 do
    if not exists then break end
    if ARGV[row + 1] == '0' then
      redis.call('HDEL', rows, ARGV[row])
    else
      redis.call('HSET', rows, ARGV[row], ARGV[row + 1])
    end
  end
  at = at + 2 * count
end
return 1
