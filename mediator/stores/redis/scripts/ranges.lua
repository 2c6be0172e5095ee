-- Ranges of an index, or of the ids. An end is a kind, a tail, the number of texts and the texts ('' for
-- missing), whose values come first, followed by the tail: 'bytes', or 'id', which makes it the end
-- of a member. A member is never in the range that it bounds.

local function end_at(at, behind)
  local kind, tail, last = ARGV[at], ARGV[at + 1], at + 2 + ARGV[at + 2]
  local bytes = sortable().sortable_all(ARGV, at + 3, last)
  if kind == 'id' then return sortable().with_id(bytes, tail) .. behind, last + 1 end
  return bytes .. tail, last + 1
end

-- Reads the two ends that begin at an index of ARGV; returns the lower end, which is in the range, the
-- upper one, which is not, and the index after them.
local function bounds(at)
  local low, between = end_at(at, '\0')
  local high, following = end_at(between, '')
  return '[' .. low, '(' .. high, following
end

return { bounds = bounds }
