-- Reads records in the order of an index, or of their ids. KEYS: class prefix.
-- ARGV: index ('' for the ids), 'up' or 'down', where to begin ('start', 'position' or 'value'),
-- position or text ('missing' for none), id, limit, names... (none: all).
-- Answers position, id and record in turn.

local index, direction, beginning = ARGV[1], ARGV[2], ARGV[3]
local descending = direction == 'down'
local bound = descending and '+' or '-'
if beginning == 'position' then
  bound = '(' .. ARGV[4]
elseif beginning == 'value' then
  bound = '(' .. sortable().member_of(ARGV[4] ~= 'missing' and ARGV[4] or nil, ARGV[5])
end
local names = {}
for i = 7, #ARGV do names[i - 6] = ARGV[i] end

local key = prefix .. (index == '' and 'ids' or 'i.' .. index)
local command = descending and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local members = redis.call(command, key, bound, descending and '-' or '+', 'LIMIT', 0, ARGV[6])
local page = {}
for _, member in ipairs(members) do
  local id = index == '' and member or sortable().id_of(member)
  page[#page + 1] = member
  page[#page + 1] = id
  page[#page + 1] = records().record_of(id, names)
end
return page
