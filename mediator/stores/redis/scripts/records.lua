-- The layout of a record. Its hash has one field per schema field; '!b' is the creation version (a
-- record without it is a tombstone), '@group' a group's version, '!m' the write intent, '!d' its redo
-- record, '!j' the last joint write, and '!u' and '!r' are prefixes of claims (claims.lua).
-- Lists, sets and maps are separate keys; their hash field is only a marker, so that empty, null and
-- missing stay distinct.

local call = redis.call
local MARKERS = { L = true, S = true, M = true }

local function record_key(id) return prefix .. 'r:' .. id end

local function native_key(name, id) return prefix .. 'f.' .. name .. ':' .. id end

local function members_of(marker, native)
  if marker == 'L' then return call('LRANGE', native, 0, -1) end
  return call(marker == 'S' and 'SMEMBERS' or 'HGETALL', native)
end

-- The complete value as one text: a collection is its marker and its members as netstrings.
local function whole(text, name, id)
  if not MARKERS[text] then return text end
  local parts = { text }
  for i, member in ipairs(members_of(text, native_key(name, id))) do
    parts[i + 1] = #member .. ':' .. member
  end
  return table.concat(parts)
end

-- Calls with at most as many arguments as Lua's stack can certainly hold.
local function in_parts(command, key, arguments)
  for first = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

local function pairs_of(flat)
  local by_name = {}
  for i = 1, #flat, 2 do by_name[flat[i]] = flat[i + 1] end
  return by_name
end

-- A record as names and complete values, including '!b' and '@group'; false if it is absent.
local function record_of(id, names)
  local key = record_key(id)
  local texts = {}
  if #names == 0 then
    texts = pairs_of(call('HGETALL', key))
  else
    for i, text in ipairs(call('HMGET', key, unpack(names))) do texts[names[i]] = text or nil end
  end
  if not texts['!b'] then return false end
  local flat = {}
  for name, text in pairs(texts) do
    flat[#flat + 1] = name
    flat[#flat + 1] = whole(text, name, id)
  end
  return flat
end

return {
  MARKERS = MARKERS, record_key = record_key, native_key = native_key, members_of = members_of,
  whole = whole,
  in_parts = in_parts, pairs_of = pairs_of, record_of = record_of,
}
