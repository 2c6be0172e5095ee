-- Counts the members of ranges of an index, or of the ids. KEYS: class prefix.
-- ARGV: index ('' for the ids); both ends of each range (see ranges.lua).

local key = prefix .. (ARGV[1] == '' and 'ids' or 'i.' .. ARGV[1])
local count, at, low, high = 0, 2, nil, nil
while at <= #ARGV do
  low, high, at = ranges().bounds(at)
  count = count + redis.call('ZLEXCOUNT', key, low, high)
end
return count
