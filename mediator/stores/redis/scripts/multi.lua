-- Compound and multi-valued indexes: a record's members follow from several fields, or from each
-- element of a list or set. So they are computed before and after a write, and the difference is
-- applied. Indexes are named by their fields, separated by commas.

local call = redis.call
local fields_of = {}
for _, name in ipairs(call('SMEMBERS', prefix .. 'indexed.multi')) do
  fields_of[name] = {}
  for field in string.gmatch(name, '[^,]+') do table.insert(fields_of[name], field) end
end

-- The indexes that have one of the fields in the keys of a table.
local function touched_by(names)
  local touched = {}
  for name, fields in pairs(fields_of) do
    for _, field in ipairs(fields) do
      if names[field] then touched[name] = fields end
    end
  end
  return touched
end

local function members_of(name, fields, id)
  local members, key = {}, records().record_key(id)
  if fields[2] then
    local texts = call('HMGET', key, '!b', unpack(fields))
    if texts[1] then
      local bytes = sortable().sortable_all(texts, 2, #fields + 1)
      members[sortable().with_id(bytes, id)] = true
    end
    return members
  end
  local marker = call('HGET', key, name)
  if records().MARKERS[marker] then
    for _, item in ipairs(records().members_of(marker, records().native_key(name, id))) do
      members[sortable().member_of(item, id)] = true
    end
  end
  return members
end

-- The members of a record in some indexes; call it before the write, and `move` after it.
local function held_in(indexes, id)
  local held = {}
  for name, fields in pairs(indexes) do held[name] = members_of(name, fields, id) end
  return held
end

local function move(held, id)
  for name, before in pairs(held) do
    local key, added, removed = prefix .. 'i.' .. name, {}, {}
    local after = members_of(name, fields_of[name], id)
    for member in pairs(before) do
      if not after[member] then removed[#removed + 1] = member end
    end
    for member in pairs(after) do
      if not before[member] then
        added[#added + 1] = 0
        added[#added + 1] = member
      end
    end
    if removed[1] then records().in_parts('ZREM', key, removed) end
    if added[1] then records().in_parts('ZADD', key, added) end
  end
end

return { fields_of = fields_of, touched_by = touched_by, held_in = held_in, move = move }
