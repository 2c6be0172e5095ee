-- Appends the changes that a relay has read from a system's logs, moves the cursors of the logs, and
-- publishes up to when the feed has all changes that the system acknowledged: all or nothing.
-- KEYS: prefix, lease. ARGV: proposed generation, token, system, until ('' if unknown); then for each
-- log its source, after, upto, and the number of rows; each row is a partition and, as lines, the
-- positions, classes and documents of its entries. Returns the number of new changes; -1: no lease;
-- -2: the feed rolled back.

local cursors = base .. 'cursors'

-- Iterates over the lines of a text; a pattern would examine every byte.
local function lines(text)
  local start = 1
  return function()
    if not start then return nil end
    local stop = string.find(text, '\n', start, true)
    local line = string.sub(text, start, stop and stop - 1)
    start = stop and stop + 1
    return line
  end
end

-- Appends the entries of a row that are beyond a cursor; returns their number.
local function append(at, cursor)
  local new, appended = false, 0
  local positions, classes = lines(ARGV[at + 1]), lines(ARGV[at + 2])
  for document in lines(ARGV[at + 3]) do
    local class = classes()
    new = new or is_before(cursor, positions())
    if new then
      append_change(ARGV[at], class, document)
      appended = appended + 1
    end
  end
  return appended
end

if redis.call('GET', KEYS[2]) ~= ARGV[2] then return -1 end

-- Checks every log before the first write: Redis does not roll scripts back.
local logs, at = {}, 5
while at <= #ARGV do
  local cursor = redis.call('HGET', cursors, ARGV[at]) or ''
  if is_before(cursor, ARGV[at + 1]) then return -2 end
  local rows, past = at + 4, at + 4 + 4 * ARGV[at + 3]
  local upto = ARGV[at + 2]
  logs[#logs + 1] = { source = ARGV[at], cursor = cursor, upto = upto, rows = rows, past = past }
  at = past
end

begin_generation(ARGV[1])
local appended = 0
for _, log in ipairs(logs) do
  for row = log.rows, log.past - 1, 4 do appended = appended + append(row, log.cursor) end
  if is_before(log.cursor, log.upto) then redis.call('HSET', cursors, log.source, log.upto) end
end
if ARGV[4] ~= '' then redis.call('HSET', base .. 'until', ARGV[3], ARGV[4]) end
return appended
