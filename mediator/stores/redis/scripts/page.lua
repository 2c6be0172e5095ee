-- Reads records in the order of an index, or of their ids. KEYS: class prefix.
-- ARGV: index ('' for the ids), 'up' or 'down', limit, number of ranges; for each range, in their
-- order, its lower end, which is in it, and its upper end, which is not; names... (none: all).
-- An end is a kind and two texts: 'bytes' (bytes, ''), 'value' (text of the value, bytes behind it)
-- or 'member' (text or '' for missing, id); a member is never in the range that it bounds.
-- Returns number of the range, position, id and record in turn.

local index, descending, left = ARGV[1], ARGV[2] == 'down', tonumber(ARGV[3])
local ranges = tonumber(ARGV[4])
local key = prefix .. (index == '' and 'ids' or 'i.' .. index)
local names = {}
for i = 5 + 6 * ranges, #ARGV do names[#names + 1] = ARGV[i] end

local function end_at(at, behind)
  local kind, text, tail = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if kind == 'bytes' then return text end
  if kind == 'value' then return sortable().sortable(text) .. tail end
  return sortable().member_of(text ~= '' and text or nil, tail) .. behind
end

local function members_of(range)
  local low = '[' .. end_at(6 * range - 1, '\0')
  local high = '(' .. end_at(6 * range + 2, '')
  if descending then
    return redis.call('ZREVRANGEBYLEX', key, high, low, 'LIMIT', 0, left)
  end
  return redis.call('ZRANGEBYLEX', key, low, high, 'LIMIT', 0, left)
end

local page = {}
for range = 1, ranges do
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
