-- Reads the deltas of a view after one of them, up to a number of bytes.
-- KEYS: stream. ARGV: the id of that delta, limit of deltas, bytes beyond which no further one is read.
-- Returns id, position and rows of each; nil: that delta is gone, and later ones may be as well.

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
