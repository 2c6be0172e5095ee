-- Counts the members of ranges of an index, or of the ids. KEYS: class prefix.
-- ARGV: index ('' for the ids); both ends of each range (see ranges.lua).

local key = prefix .. (ARGV[1] == '' and 'ids' or 'i.' .. ARGV[1])
local count = 0
for at = 2, #ARGV, ranges().words do
  count = count + redis.call('ZLEXCOUNT', key, ranges().bounds(at))
end
return count
