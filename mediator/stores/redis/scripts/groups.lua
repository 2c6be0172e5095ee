-- Counts the members of each value of an index, from one value to the next, without reading the
-- other members. KEYS: class prefix. ARGV: index, maximum number of groups, number of ranges; both
-- ends of each range (see ranges.lua), which split no value.
-- Returns for each group the number of its range, its first position, its number of members, and the
-- text of its value (false: missing).

local index, left, at, low, high = ARGV[1], tonumber(ARGV[2]), 4, nil, nil
local key = prefix .. 'i.' .. index
local groups = {}

for range = 1, tonumber(ARGV[3]) do
  low, high, at = ranges().bounds(at)
  while left > 0 do
    local member = redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, 1)[1]
    if not member then break end
    local id = sortable().id_of(member)
    local value = string.sub(member, 1, -#id - 4)
    local behind = value .. '\255' -- an id follows, and UTF-8 has no such byte
    groups[#groups + 1] = range
    groups[#groups + 1] = value
    groups[#groups + 1] = redis.call('ZLEXCOUNT', key, '[' .. value, '(' .. behind)
    groups[#groups + 1] = redis.call('HGET', prefix .. 'r:' .. id, index)
    low, left = '[' .. behind, left - 1
  end
end
return groups
