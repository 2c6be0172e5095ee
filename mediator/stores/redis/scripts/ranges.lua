-- Ranges of an index, or of the ids. An end is a kind and two texts: 'bytes' (bytes, ''), 'value'
-- (text of the value, bytes behind it) or 'member' (text or '' for missing, id); a member is never
-- in the range that it bounds.

local function end_at(at, behind)
  local kind, text, tail = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if kind == 'bytes' then return text end
  if kind == 'value' then return sortable().sortable(text) .. tail end
  return sortable().member_of(text ~= '' and text or nil, tail) .. behind
end

-- Returns the lower end, which is in the range, and the upper one, which is not; in ARGV they are
-- six words, the first of which is `at`.
local function bounds(at)
  return '[' .. end_at(at, '\0'), '(' .. end_at(at + 3, '')
end

return { bounds = bounds, words = 6 }
