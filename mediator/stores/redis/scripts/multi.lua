-- Compound and multi-valued indexes: what a record has in them follows from several fields, or from
-- each element of a list or set. So it is read before a write and after it, and what differs is
-- moved. They are named by their fields, with commas between them.

local call = redis.call
local fields_of = {}
for _, name in ipairs(call('SMEMBERS', prefix .. 'indexed.multi')) do
  fields_of[name] = {}
  for field in string.gmatch(name, '[^,]+') do table.insert(fields_of[name], field) end
end

-- The indexes that have one of some fields, in the keys of a table.
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

-- What a record has in each of some indexes; to be called before the write, and then `move`.
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
