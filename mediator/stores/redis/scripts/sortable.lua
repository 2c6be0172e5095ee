-- Index members: the order of their bytes is the order of (value, id), for all types. All members of
-- an index have the score 0, so that a page is one ZRANGEBYLEX, without ties and re-checks.
-- member = state (missing < null < value) and value, for each field of a compound index in order; id,
-- NUL, two bytes of the id's length.

local char, byte, sub, gsub = string.char, string.byte, string.sub, string.gsub
local floor = math.floor

local function flipped(bytes)
  return (gsub(bytes, '.', function(c) return char(255 - byte(c)) end))
end

-- A number with more digits is greater, so their count comes first; both are complemented below zero.
local function sortable_integer(text)
  if byte(text) ~= 45 then return char(128 + #text) .. text end
  local digits = gsub(sub(text, 2), '%d', function(d) return 9 - d end)
  return char(127 - #digits) .. digits
end

-- Positive doubles sort by their bytes once the sign bit is set; of negative ones all bits are
-- flipped, because a greater magnitude is less. Adding 0 turns negative zero into zero.
local function sortable_float(text)
  local bytes = struct.pack('>d', tonumber(text) + 0)
  if byte(bytes) >= 128 then return flipped(bytes) end
  return char(byte(bytes) + 128) .. sub(bytes, 2)
end

-- text: sign, digits of the coefficient, 'e', exponent.
local function sortable_decimal(text)
  local sign, digits, exponent = string.match(text, '^(%-?)(%d+)e(%-?%d+)$')
  local trimmed = gsub(digits, '0+$', '')
  if trimmed == '' then return '\1' end
  local magnitude = struct.pack('>I4', 2147483648 + exponent + #digits) .. trimmed .. '\0'
  return sign == '' and '\2' .. magnitude or '\0' .. flipped(magnitude)
end

-- NUL is escaped and NUL 1 ends the text, so that a text sorts before its extensions.
local function sortable_bytes(bytes)
  return gsub(bytes, '%z', '\0\255') .. '\0\1'
end

local sortable_by_tag = {
  u = function(text) return sortable_integer(sub(text, 2)) end,
  f = function(text) return sortable_float(sub(text, 2)) end,
  d = function(text) return sortable_decimal(sub(text, 2)) end,
  b = function(text) return sub(text, 2) end,
  s = function(text) return sortable_bytes(sub(text, 2)) end,
  y = function(text) return sortable_bytes(sub(text, 2)) end,
}

local function sortable(text)
  if not text then return '\0' end
  local tag = sub(text, 1, 1)
  if tag == 'n' then return '\1' end
  return '\2' .. (sortable_by_tag[tag] or sortable_integer)(text)
end

local function with_id(bytes, id)
  return bytes .. id .. '\0' .. char(floor(#id / 256), #id % 256)
end

local function member_of(text, id) return with_id(sortable(text), id) end

-- No value is a prefix of another, so the values of several fields can be concatenated.
local function sortable_all(texts, first, last)
  local parts = {}
  for i = first, last do parts[#parts + 1] = sortable(texts[i] ~= '' and texts[i] or nil) end
  return table.concat(parts)
end

local function id_of(member)
  local length = byte(member, -2) * 256 + byte(member, -1)
  return sub(member, -3 - length, -4)
end

return {
  sortable = sortable, sortable_all = sortable_all, with_id = with_id, member_of = member_of,
  id_of = id_of,
}
