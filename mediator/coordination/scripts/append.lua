-- Appends what a relay has read of a log, and moves the cursor.
-- KEYS: prefix, lease. ARGV: incarnation proposed, token, source, after, upto; then rows of
-- partition and, as lines, the places, classes and documents of its entries. Answers how many were
-- new; -1: no lease; -2: went back.

-- Iterates over the lines of a text; a pattern would look at each byte in turn.
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

local token, source, after, upto = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('GET', KEYS[2]) ~= token then return -1 end
local cursor = redis.call('HGET', base .. 'cursors', source) or ''
if below(cursor, after) then return -2 end
incarnate(ARGV[1])
local appended = 0
for at = 6, #ARGV, 4 do
  local stream, new = base .. ARGV[at], false
  local places, classes = lines(ARGV[at + 1]), lines(ARGV[at + 2])
  for document in lines(ARGV[at + 3]) do
    local class = classes()
    new = new or below(cursor, places())
    if new then
      redis.call('XADD', stream, '*', 'k', class, 'c', document)
      appended = appended + 1
    end
  end
end
if below(cursor, upto) then redis.call('HSET', base .. 'cursors', source, upto) end
return appended
