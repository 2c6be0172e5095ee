-- Reads records in the order of an index, or of their ids. KEYS: class prefix.
-- ARGV: index ('' for the ids), 'up' or 'down', limit, number of names, names... (none: all); both ends
-- of each range (see ranges.lua), in order.
-- Returns alternately the number of the range, position, id and record.

local index, descending, left = ARGV[1], ARGV[2] == 'down', tonumber(ARGV[3])
local at, low, high = 5 + ARGV[4], nil, nil
local key = prefix .. (index == '' and 'ids' or 'i.' .. index)
local names = { unpack(ARGV, 5, at - 1) }

local function members_of()
  if descending then
    return redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, left)
  end
  return redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, left)
end

local page, range = {}, 0
while at <= #ARGV and left > 0 do
  low, high, at = ranges().bounds(at)
  range = range + 1
  local members = members_of()
  left = left - #members
  for _, member in ipairs(members) do
    local id = index == '' and member or sortable().id_of(member)
    page[#page + 1] = range
    page[#page + 1] = member
    page[#page + 1] = id
    page[#page + 1] = records().record_of(id, names)
  end
end
return page
