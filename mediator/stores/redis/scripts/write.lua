-- The general script of writes. Each is atomic: all conditions that can refuse it are checked before
-- its first effect, because Lua does not roll back.
-- KEYS: class prefix, outbox stream, and the claims of a class that has unique constraints.
-- ARGV: database/class, TTL of tombstones and of remembered operations (ms), length of the outbox;
-- then a shape and its rows (see write/prepared.py). Returns one list per row: status, details...

-- Before Redis 7 a script that has read the clock can write only if its effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local APPLIED, REPLAYED, REUSED, CONFLICT, MISSING, EXISTS, REFUSED, FENCED = 1, 2, 3, 4, 5, 6, 7, 8
local LOCKED, TAKEN = 9, 10
local SAFE_DIGITS, COLON = 15, 58 -- digits and the minus sign are below the colon
local call, format, byte, char = redis.call, string.format, string.byte, string.char
local argv, outbox = ARGV, KEYS[2]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = format('%.0f', now)
local indexed = {}
for _, name in ipairs(call('SMEMBERS', prefix .. 'indexed')) do indexed[name] = true end
local has_multi = call('EXISTS', prefix .. 'indexed.multi') == 1

local cursor = 4
local NOTHING = {}

local function take()
  cursor = cursor + 1
  return argv[cursor]
end

local function take_list()
  local list = {}
  for i = 1, tonumber(take()) do list[i] = take() end
  return list
end

-- Groups are given as the position of their version among the stored names.
local function take_positions()
  local list = take_list()
  for i = 1, #list do list[i] = tonumber(list[i]) end
  return list
end

-- The compound and multi-valued indexes that a write can change: all, for a complete record.
local function multi_touched(shape)
  if not shape.updates then return multi().fields_of end
  local names = {}
  for _, change in ipairs(shape.changes) do names[change.name] = true end
  return multi().touched_by(names)
end

local function take_shape()
  local shape = { kind = take(), changes = {} }
  shape.updates = shape.kind == 'update'
  shape.is_live = shape.kind ~= 'delete'
  shape.names = take_list()
  shape.first = #shape.names
  shape.group_at = {}
  for i = 2, shape.first do shape.group_at[i] = string.sub(shape.names[i], 2) end
  shape.written = take_positions()
  shape.expected = take_positions()
  local flags = take() -- a digit for each, in the order of write/prepared.py; 49 is '1'
  shape.remembers = byte(flags, 1) == 49
  shape.given_creation_version = byte(flags, 2) == 49
  shape.must_exist = byte(flags, 3) == 49
  shape.has_collections = byte(flags, 4) == 49
  shape.has_token, shape.has_intent = byte(flags, 6) == 49, byte(flags, 7) == 49
  shape.fences = shape.has_token and call('EXISTS', prefix .. 'fences') == 1 and prefix .. 'fences'
  shape.returns = byte(flags, 5) == 49 and take_list()
  shape.claims = byte(flags, 8) == 49 and take_list()
  for i = 1, tonumber(take()) do
    local name, group, code, limit, arity = take(), tonumber(take()), take(), take(), take()
    shape.names[shape.first + i] = name
    shape.changes[i] = { name = name, group = group, code = code, limit = limit, arity = arity,
      index = indexed[name] and prefix .. 'i.' .. name, before = '-' .. name, after = '+' .. name }
  end
  if has_multi then shape.multi = multi_touched(shape) end
  shape.intent_at = #shape.names + 1
  shape.names[shape.intent_at] = '!m'
  return shape
end

local function take_row(shape)
  local id = argv[cursor + 1]
  local row = { id = id, operation = argv[cursor + 2], key = prefix .. 'r:' .. id, arguments = {},
    is_live = shape.is_live, expect = shape.expected[1] and {} or NOTHING }
  cursor = cursor + 2
  if shape.has_token then row.token = take() end
  if shape.has_intent then row.intent = take() end
  if shape.remembers then row.fingerprint = take() end
  if shape.given_creation_version then row.creation_version = take() end
  for i = 1, #shape.expected do row.expect[i] = take() end
  if shape.claims then
    row.claims = {}
    for i = 1, #shape.claims do row.claims[i] = take() end
  end
  for i, change in ipairs(shape.changes) do
    if change.arity == '1' then
      row.arguments[i] = take()
    elseif change.arity == 'n' then
      row.arguments[i] = take_list()
    end
  end
  return row
end

local function versions_of(shape, held)
  local versions = {}
  for i = 2, shape.first do versions[i - 1] = held[i] or '' end
  return versions
end

local function rejected(shape, row, held)
  local creation_version, intent = held[1], held[shape.intent_at]
  if (intent or '') ~= (row.intent or '') then return { LOCKED, intent or '' } end
  if creation_version and shape.kind == 'create' then return { EXISTS } end
  if not creation_version and (shape.updates or shape.must_exist or not row.is_live) then
    return { MISSING }
  end
  -- A deletion that was decided before the record was created again leaves it alone.
  if not row.is_live and row.creation_version
    and tonumber(creation_version) > tonumber(row.creation_version) then
    return { MISSING }
  end
  for i, position in ipairs(shape.expected) do
    if not creation_version or (held[position] or '0') ~= row.expect[i] then
      return { CONFLICT, creation_version and versions_of(shape, held) or {} }
    end
  end
end

local function native_of(shape, change, row)
  return shape.has_collections and records().native_key(change.name, row.id)
end

-- Returns the new texts of the touched fields (false: missing), or nil and the reason of the refusal.
local function computed(shape, row, held)
  local after = {}
  for i, change in ipairs(shape.changes) do
    local code, stored, argument = change.code, held[shape.first + i], row.arguments[i]
    if code == '=' then
      after[i] = argument
    elseif code == '-' then
      after[i] = false
    elseif code == 'now' then
      after[i] = 'u' .. now_text
    elseif code == 'inc' and change.limit == ''
      and stored and #stored <= SAFE_DIGITS and #argument <= SAFE_DIGITS
      and byte(stored) < COLON and byte(argument) < COLON then
      after[i] = format('%.0f', stored + argument)
    else
      local text, reason = operators().apply(
        code, stored, argument, change.limit, native_of(shape, change, row))
      if reason then return nil, { REFUSED, change.name, reason } end
      after[i] = text
    end
  end
  return after
end

-- The complete values of the touched fields, from position first + 1 on.
local function images(shape, row, texts, first)
  if not shape.has_collections then return texts end
  local whole = {}
  for i, change in ipairs(shape.changes) do
    whole[first + i] = records().whole(texts[first + i], change.name, row.id)
  end
  return whole
end

local function alter_collections(shape, row, held)
  if not row.all then
    for i, change in ipairs(shape.changes) do
      local native = native_of(shape, change, row)
      operators().alter(change.code, held[shape.first + i], row.arguments[i], native)
    end
    return
  end
  lifecycle().forget_collections(row)
  for i, change in ipairs(shape.changes) do
    if change.code == 'collection' then
      operators().alter(change.code, nil, row.arguments[i], native_of(shape, change, row))
    end
  end
end

-- Sets the new versions of the written groups, also in `held`; returns names and texts to store.
local function advanced(shape, held)
  local fields, highest = {}, 0
  for _, position in ipairs(shape.written) do
    local version = (held[position] or 0) + 1
    if version < now then version = now end
    if version > highest then highest = version end
    held[position] = version == now and now_text or format('%.0f', version)
    fields[#fields + 1] = shape.names[position]
    fields[#fields + 1] = held[position]
  end
  return fields, highest
end

local function put_update(shape, row, after, fields)
  local removed
  for i, change in ipairs(shape.changes) do
    if after[i] then
      fields[#fields + 1] = change.name
      fields[#fields + 1] = after[i]
    else
      removed = removed or {}
      removed[#removed + 1] = change.name
    end
  end
  if fields[1] and #fields <= 1000 then
    call('HSET', row.key, unpack(fields))
  elseif fields[1] then
    records().in_parts('HSET', row.key, fields)
  end
  if row.intent then
    removed = removed or {}
    removed[#removed + 1] = '!m'
    removed[#removed + 1] = '!d'
  end
  if removed then records().in_parts('HDEL', row.key, removed) end
end

local function put(shape, row, held, after)
  local creation_version = held[1]
  local fields, highest = advanced(shape, held)
  if row.intent and row.is_live then
    fields[#fields + 1] = '!j'
    fields[#fields + 1] = row.intent
  end
  if shape.updates then
    put_update(shape, row, after, fields)
    return creation_version
  end
  if not row.is_live then
    local milliseconds, ttl = math.floor(now / 1000), tonumber(argv[2])
    return lifecycle().put_tombstone(row, fields, highest, milliseconds, ttl)
  end
  for i, change in ipairs(shape.changes) do
    if after[i] then
      fields[#fields + 1] = change.name
      fields[#fields + 1] = after[i]
    end
  end
  return lifecycle().put(row, fields, highest)
end

local function member_of(text, id, tail)
  if text and #text <= SAFE_DIGITS and byte(text) < COLON and byte(text) ~= 45 then
    return '\2' .. char(128 + #text) .. text .. tail
  end
  return sortable().member_of(text or nil, id)
end

local function reindex(shape, row, held, after)
  if row.all then return lifecycle().reindex(indexed, row, shape.names, shape.first, after) end
  for i, change in ipairs(shape.changes) do
    local before = held[shape.first + i]
    if change.index and before ~= after[i] then
      local id = row.id
      local tail = id .. '\0' .. char(#id / 256, #id % 256)
      call('ZREM', change.index, member_of(before, id, tail))
      call('ZADD', change.index, 0, member_of(after[i], id, tail))
    end
  end
end

-- An entry of the outbox: what (database/class/group/kind), object, operation, version, time
-- (unless it equals the version), absent (if a replacement created the object), and -field and
-- +field: the texts before and after, of present fields.
local function add_to_outbox(shape, row, held, before, after, created)
  for _, position in ipairs(shape.written) do
    local version = held[position]
    local what = argv[1] .. '/' .. shape.group_at[position] .. '/' .. shape.kind
    local entry = { 'what', what, 'object', row.id, 'operation', row.operation, 'version', version }
    local n = 8
    if version ~= now_text then
      entry[9], entry[10], n = 'time', now_text, 10
    end
    if created == 1 and shape.kind == 'replace' then
      entry[n + 1], entry[n + 2], n = 'absent', '1', n + 2
    end
    for i, change in ipairs(shape.changes) do
      if change.group == position then
        local held_before = before[shape.first + i]
        if held_before then
          entry[n + 1], entry[n + 2] = change.before, held_before
          n = n + 2
        end
        if after[i] then
          entry[n + 1], entry[n + 2] = change.after, after[i]
          n = n + 2
        end
      end
    end
    call('XADD', outbox, 'MAXLEN', '~', argv[4], '*', unpack(entry))
  end
end

local function returned(shape, row)
  if not shape.returns or not row.is_live then return NOTHING end
  if #shape.returns == 0 then return records().record_of(row.id, {}) end
  return records().record_of(row.id, { '!b', unpack(shape.returns) })
end

local function apply(shape, row, held, after)
  local created = (row.is_live and not held[1]) and 1 or 0
  local before = images(shape, row, held, shape.first)
  local in_multi = shape.multi and multi().held_in(shape.multi, row.id)
  if shape.has_collections or row.all then alter_collections(shape, row, held) end
  -- An absent record claims nothing, and has reservations only under an intent.
  if shape.claims and (held[1] or row.intent) then claims().release(shape.claims, row.key) end
  local creation_version = put(shape, row, held, after)
  if shape.claims then claims().take(shape.claims, row.claims, row.key) end
  if next(indexed) then reindex(shape, row, held, after) end
  if in_multi then multi().move(in_multi, row.id) end
  add_to_outbox(shape, row, held, before, images(shape, row, after, 0), created)
  local versions, values = versions_of(shape, held), returned(shape, row)
  if shape.remembers then
    memory().remember(row, created, creation_version, shape.names, versions, values, argv[3])
  end
  return { APPLIED, created, creation_version, versions, values }
end

local function write(shape, row)
  if shape.remembers then
    local known, same, remembered = memory().recall(row)
    if known then return same and { REPLAYED, remembered } or { REUSED } end
  end
  if shape.fences and call('ZSCORE', shape.fences, #row.id .. ':' .. row.id .. row.token) then
    return { FENCED }
  end
  local held
  if shape.updates then
    held = call('HMGET', row.key, unpack(shape.names))
  else
    held, row.all = lifecycle().held_by(shape.names, row.key)
  end
  local rejection = rejected(shape, row, held)
  if rejection then return rejection end
  local after, refusal = computed(shape, row, held)
  if refusal then return refusal end
  local taken = shape.claims and claims().taken(shape.claims, row.claims, row.key)
  if taken then return { TAKEN, unpack(taken) } end
  return apply(shape, row, held, after)
end

local results, shape = {}, take_shape()
while cursor < #argv do results[#results + 1] = write(shape, take_row(shape)) end
return results
