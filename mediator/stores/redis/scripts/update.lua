-- Applies updates of one form to records of one partition: fields that are set to scalars, and
-- integers that are added to. write.lua can do all this and much else, and takes five times as long.
-- KEYS: class prefix, outbox stream.
-- ARGV: length of the outbox, groups, changes, groups written, fields returned, words that head a
--   row; then
--   [name of each version], for each change its field, group and code,
--   for each group written its position and what the outbox says of it, [positions returned];
--   then rows: id, operation, token (if the head has three words), argument of each change.
-- Answers flat, for each row: status, creation version, versions of all groups, fields returned. A row that is
-- refused has the field instead of the creation version and the reason instead of the first version; one that
-- is locked has the intent instead of the creation version.

local APPLIED, MISSING, REFUSED, FENCED, LOCKED = 1, 5, 7, 8, 9
local SAFE_DIGITS, COLON, MINUS = 15, 58, 45 -- digits and the minus sign are below the colon
local call, format, byte, char, floor = redis.call, string.format, string.byte, string.char, math.floor
local argv, outbox = ARGV, KEYS[2]
local most, first, returned = argv[1], 1 + argv[2], tonumber(argv[5])
local fencing = argv[6] == '3' and call('EXISTS', prefix .. 'fences') == 1
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = format('%.0f', now)

-- Adds integers that are given as text; answers nothing beyond the range.
local function sum_of(stored, text)
  if stored and #stored <= SAFE_DIGITS and #text <= SAFE_DIGITS
    and byte(stored) < COLON and byte(text) < COLON then
    return format('%.0f', stored + text)
  end
  return int64().add(stored and stored ~= 'n' and stored or '0', text)
end

local function member_of(text, id)
  if text and #text <= SAFE_DIGITS and byte(text) < COLON and byte(text) ~= MINUS then
    return '\2' .. char(128 + #text) .. text .. id .. '\0' .. char(floor(#id / 256), #id % 256)
  end
  return sortable().member_of(text or nil, id)
end

local function index_of(name)
  return call('SISMEMBER', prefix .. 'indexed', name) == 1 and prefix .. 'i.' .. name
end

local function reindex(index, id, before, after)
  if before ~= after then
    call('ZREM', index, member_of(before, id))
    call('ZADD', index, 0, member_of(after, id))
  end
end

local changes, written, head = tonumber(argv[3]), tonumber(argv[4]), tonumber(argv[6])

-- Tables are made once and overwritten by every row.
local names, counts, indexes, group_of, before_of, after_of = { '!b' }, {}, {}, {}, {}, {}
local positions, told, shown, after, fields = {}, {}, {}, {}, {}
local entry = { 'what', '', 'object', '', 'operation', '', 'version', '' }
local cursor = 6
for i = 2, first do
  cursor = cursor + 1
  names[i] = argv[cursor]
end
for i = 1, changes do
  local name = argv[cursor + 1]
  names[first + i] = name
  group_of[i], counts[i] = tonumber(argv[cursor + 2]), argv[cursor + 3] == 'inc'
  indexes[i] = index_of(name)
  before_of[i], after_of[i] = '-' .. name, '+' .. name
  fields[2 * (written + i) - 1] = name
  cursor = cursor + 3
end
names[first + changes + 1] = '!m'
for i = 1, written do
  positions[i], told[i] = tonumber(argv[cursor + 1]), argv[cursor + 2]
  fields[2 * i - 1] = names[positions[i]]
  cursor = cursor + 2
end
for i = 1, returned do shown[i] = tonumber(argv[cursor + i]) end
cursor = cursor + returned

local width = first + 1 + returned

-- Answers a row that is not applied.
local function rejected(status, name, reason)
  answers[n + 1], answers[n + 2], answers[n + 3] = status, name or false, reason or false
  for i = 4, width do answers[n + i] = false end
end

-- Computes the texts after an update; answers false, having rejected the row, if it has none.
local function computed(held, at)
  for i = 1, changes do
    local text, stored = argv[at + head - 1 + i], held[first + i]
    if not counts[i] then
      after[i] = text
    else
      after[i] = sum_of(stored, text)
      if not after[i] then return rejected(REFUSED, names[first + i], 'overflow') end
    end
    fields[2 * (written + i)] = after[i]
  end
  return true
end

for at = next_row or cursor + 1, #argv, head + changes do
  local id = argv[at]
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, unpack(names))
  if fencing and call('ZSCORE', prefix .. 'fences', #id .. ':' .. id .. argv[at + 2]) then
    rejected(FENCED)
  elseif held[first + changes + 1] then
    rejected(LOCKED, held[first + changes + 1])
  elseif not held[1] then
    rejected(MISSING)
  elseif computed(held, at) then
    entry[4], entry[6] = id, argv[at + 1]
    for w = 1, written do
      local version = (held[positions[w]] or 0) + 1
      local text = version > now and format('%.0f', version) or now_text
      held[positions[w]], fields[2 * w] = text, text
    end
    call('HSET', key, unpack(fields))
    for i = 1, changes do
      if indexes[i] then reindex(indexes[i], id, held[first + i], after[i]) end
    end
    for w = 1, written do
      local position, size = positions[w], 8
      local version = held[position]
      entry[2], entry[8] = told[w], version
      if version ~= now_text then
        entry[9], entry[10], size = 'time', now_text, 10
      end
      for i = 1, changes do
        if group_of[i] == position then
          local before = held[first + i]
          if before then
            entry[size + 1], entry[size + 2], size = before_of[i], before, size + 2
          end
          entry[size + 1], entry[size + 2], size = after_of[i], after[i], size + 2
        end
      end
      call('XADD', outbox, 'MAXLEN', '~', most, '*', unpack(entry, 1, size))
    end
    answers[n + 1] = APPLIED
    for i = 1, first do answers[n + 1 + i] = held[i] end
    for i = 1, returned do answers[n + 1 + first + i] = after[shown[i]] end
  end
  n = n + width
end
return answers
