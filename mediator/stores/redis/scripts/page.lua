-- Reads records in the order of an index, or of their ids. KEYS: class prefix.
-- ARGV: index ('' for the ids), 'up' or 'down', limit, number of ranges; both ends of each range
-- (see ranges.lua), in their order; names... (none: all).
-- Returns number of the range, position, id and record in turn.

local index, descending, left = ARGV[1], ARGV[2] == 'down', tonumber(ARGV[3])
local count, words = tonumber(ARGV[4]), ranges().words
local key = prefix .. (index == '' and 'ids' or 'i.' .. index)
local names = {}
for i = 5 + words * count, #ARGV do names[#names + 1] = ARGV[i] end

local function members_of(range)
  local low, high = ranges().bounds(5 + words * (range - 1))
  if descending then
    return redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, left)
  end
  return redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, left)
end

local page = {}
for range = 1, count do
  if left == 0 then break end
  local members = members_of(range)
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
