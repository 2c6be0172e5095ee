-- Reads the deltas of a view after one of them, and stops where they have many bytes.
-- KEYS: stream. ARGV: the id of that delta, how many at most, after how many bytes there is no further.
-- Returns id, position and rows of each; nil: that delta is gone, and others after it may be, too.

if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return false end
local deltas, bytes, last = {}, 0, ARGV[1]
while #deltas < tonumber(ARGV[2]) and bytes < tonumber(ARGV[3]) do
  local found = redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
  if not found then break end
  local position, rows = found[2][2], found[2][4]
  last, bytes = found[1], bytes + #rows
  deltas[#deltas + 1] = { last, position, rows }
end
return deltas
