-- The fast path of updates: sets fields to scalars and adds to integers, by one prepared update for
-- many records of a partition. All other writes go to write.lua, which takes five times as long.
-- It defines no function, because Redis creates all functions of a script in every call, which takes
-- as long as a row. A module is created where a value needs it.
-- KEYS: class prefix, outbox stream.
-- ARGV: length of the outbox; number of groups, of changes, of written groups and of returned
--   fields; arguments at the head of a row (2, or 3 with a token); then
--   names in the hash: '!b', the version of each group, the field of each change, '!m';
--   columns of the changes: code ('=' or 'inc'), position of the group's version among the names,
--     name of the image before and of the image after in the outbox, bounds of a sum ('' or two
--     numbers of at most 15 digits, of which either can be missing);
--   columns of the written groups: position among the names, subject of outbox entries;
--   positions of the returned changes;
--   rows: id, operation, token (if any), argument of each change.
-- Returns flat, for each row: status, creation version, versions of all groups, returned fields. A
--   refused row has the field instead of the creation version and the reason after it; a locked row
--   has the intent instead of the creation version.

if redis.replicate_commands then redis.replicate_commands() end

local APPLIED, MISSING, REFUSED, FENCED, LOCKED = 1, 5, 7, 8, 9
local SAFE_DIGITS = 15 -- doubles are exact up to here
local MINUS, COLON = 45, 58 -- digits lie between them; letters, which tag other types, are above
local call, byte, char, format = redis.call, string.byte, string.char, string.format
local argv, outbox = ARGV, KEYS[2]

local first, changes, written = 1 + argv[2], argv[3] + 0, argv[4] + 0
local returned, head = argv[5] + 0, argv[6] + 0
-- The offset of each list of the shape: its first item follows this index.
local fields = 6 + first
local last_name = fields + changes + 1
local codes, groups = last_name, last_name + changes
local before_names, after_names = groups + changes, groups + 2 * changes
local bounds = after_names + changes
local positions = bounds + changes
local whats, returns = positions + written, positions + 2 * written
local rows = returns + returned

-- Numbers in text are compared and used as indices by every row.
for i = groups + 1, groups + changes do argv[i] = argv[i] + 0 end
for w = positions + 1, positions + written do argv[w] = argv[w] + 0 end
local lows, highs = {}, {}
for i = 1, changes do
  if argv[bounds + i] ~= '' then
    local low, high = string.match(argv[bounds + i], '^(%S*) (%S*)$')
    lows[i], highs[i] = tonumber(low), tonumber(high)
  end
end

local fenced = head == 3 and call('EXISTS', prefix .. 'fences') == 1
-- The compound indexes with a changed field; all other indexes are of single values.
local compound = call('EXISTS', prefix .. 'indexed.multi') == 1 and {}
if compound then
  for i = 1, changes do compound[argv[fields + i]] = true end
  compound = multi().touched_by(compound)
end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_text = format('%.0f', now)

-- Tables are created once, in the length that a row needs, and overwritten by every row.
local results, n, indexes = {}, 0, {}
local entry = { 'MAXLEN', '~', argv[1], '*', 'what', '', 'object', '', 'operation', '',
  'version', '', '', '', '', '' }
local entry_from = 1 -- the outbox is trimmed by the first entry of a call, not by each
-- The arguments of HSET: names and texts of the written versions, then of the fields.
local assignments, texts = { '', '', '', '' }, 2 * written
for w = 1, written do assignments[2 * w - 1] = argv[6 + argv[positions + w]] end
for i = 1, changes do assignments[texts + 2 * i - 1] = argv[fields + i] end

for at = rows + 1, #argv, head + changes do
  local id, arguments = argv[at], at + head - 1
  local key = prefix .. 'r:' .. id
  local held = call('HMGET', key, unpack(argv, 7, last_name))
  local intent = held[first + changes + 1]
  local status, subject, reason = APPLIED, false, false

  if fenced and call('ZSCORE', prefix .. 'fences', #id .. ':' .. id .. argv[at + 2]) then
    status = FENCED
  elseif intent then
    status, subject = LOCKED, intent
  elseif not held[1] then
    status = MISSING
  else
    -- All conditions that can refuse the row come before its first effect: Lua does not roll back.
    for i = 1, changes do
      local stored, text = held[first + i], argv[arguments + i]
      if argv[codes + i] == 'inc' then
        if stored and #stored <= SAFE_DIGITS and #text <= SAFE_DIGITS
          and byte(stored) < COLON and byte(text) < COLON then
          text = format('%.0f', stored + text)
        else
          text = int64().add(stored and stored ~= 'n' and stored or '0', text)
        end
        if not text then
          reason = 'overflow'
        elseif lows[i] and text + 0 < lows[i] then
          reason = 'below_minimum'
        elseif highs[i] and text + 0 > highs[i] then
          reason = 'above_maximum'
        end
        if reason then
          status, subject = REFUSED, argv[fields + i]
          break
        end
      end
      assignments[texts + 2 * i] = text
    end
  end

  results[n + 1] = status
  if status ~= APPLIED then
    results[n + 2], results[n + 3] = subject, reason
    for i = 4, 1 + first + returned do results[n + i] = false end
  else
    entry[8], entry[10] = id, argv[at + 1]
    for w = 1, written do
      local position, size = argv[positions + w], 12
      local version = (held[position] or 0) + 1
      local text = now_text
      if version > now then -- the clock was set back: the entry needs a time beside its version
        text = format('%.0f', version)
        entry[13], entry[14], size = 'time', now_text, 14
      end
      held[position], assignments[2 * w] = text, text
      entry[6], entry[12] = argv[whats + w], text
      for i = 1, changes do
        if argv[groups + i] == position then
          local old = held[first + i]
          if old then
            entry[size + 1], entry[size + 2], size = argv[before_names + i], old, size + 2
          end
          entry[size + 1], entry[size + 2] = argv[after_names + i], assignments[texts + 2 * i]
          size = size + 2
        end
      end
      call('XADD', outbox, unpack(entry, entry_from, size))
      entry_from = 4
    end
    local in_compound = compound and multi().held_in(compound, id)
    call('HSET', key, unpack(assignments))
    if in_compound then multi().move(in_compound, id) end

    for i = 1, changes do
      local old, new = held[first + i], assignments[texts + 2 * i]
      if old ~= new then
        local index = indexes[i]
        if index == nil then
          local name = argv[fields + i]
          index = call('SISMEMBER', prefix .. 'indexed', name) == 1 and prefix .. 'i.' .. name
          indexes[i] = index
        end
        if index then
          -- Members of short natural numbers are written here; see sortable.lua.
          local tail = id .. '\0' .. char(#id / 256, #id % 256)
          local digit = old and #old <= SAFE_DIGITS and byte(old) or 0
          local member = digit > MINUS and digit < COLON
            and '\2' .. char(128 + #old) .. old .. tail
            or sortable().member_of(old or nil, id)
          call('ZREM', index, member)
          digit = #new <= SAFE_DIGITS and byte(new) or 0
          member = digit > MINUS and digit < COLON
            and '\2' .. char(128 + #new) .. new .. tail
            or sortable().member_of(new, id)
          call('ZADD', index, 0, member)
        end
      end
    end

    for i = 1, first do results[n + 1 + i] = held[i] end
    for i = 1, returned do
      results[n + 1 + first + i] = assignments[texts + 2 * argv[returns + i]]
    end
  end
  n = n + 1 + first + returned
end
return results
