-- Helpers of creation, replacement and deletion only: they read the complete record.

local call, format = redis.call, string.format
local VERSION = 64 -- the @ of a version's name

-- The stored texts, in the order of the names; and all of them by name.
local function held_by(names, key)
  local all = records().pairs_of(call('HGETALL', key))
  local held = {}
  for i, name in ipairs(names) do held[i] = all[name] or false end
  return held, all
end

local function forget_collections(row)
  for name, text in pairs(row.all) do
    if records().MARKERS[text] then call('UNLINK', records().native_key(name, row.id)) end
  end
end

local function reindex(indexed, row, names, first, after)
  local texts = {}
  for i, text in ipairs(after) do texts[names[first + i]] = text or nil end
  for name in pairs(indexed) do
    local key = prefix .. 'i.' .. name
    if row.all['!b'] then
      call('ZREM', key, sortable().member_of(row.all[name], row.id))
    end
    if row.is_live then call('ZADD', key, 0, sortable().member_of(texts[name], row.id)) end
  end
end

-- Writes the new record; fields: alternating names and texts, including versions.
local function put(row, fields, highest)
  local creation_version = row.creation_version or row.all['!b'] or format('%.0f', highest)
  fields[#fields + 1] = '!b'
  fields[#fields + 1] = creation_version
  call('DEL', row.key)
  records().in_parts('HSET', row.key, fields)
  if not row.all['!b'] then
    call('ZADD', prefix .. 'ids', 0, row.id)
    if next(row.all) then call('ZREM', prefix .. 'tombstones', row.id) end
  end
  return creation_version
end

-- The versions stay, so that a later object with this id continues above them.
local function put_tombstone(row, fields, highest, milliseconds, ttl)
  local written = records().pairs_of(fields)
  for name, text in pairs(row.all) do
    if string.byte(name) == VERSION and not written[name] then
      fields[#fields + 1] = name
      fields[#fields + 1] = text
      highest = math.max(highest, tonumber(text))
    end
  end
  call('DEL', row.key)
  records().in_parts('HSET', row.key, fields)
  call('PEXPIRE', row.key, ttl)
  call('ZREM', prefix .. 'ids', row.id)
  call('ZREMRANGEBYSCORE', prefix .. 'tombstones', '-inf', milliseconds)
  call('ZADD', prefix .. 'tombstones', milliseconds + ttl, row.id)
  return format('%.0f', highest)
end

return {
  held_by = held_by, forget_collections = forget_collections, reindex = reindex,
  put = put, put_tombstone = put_tombstone,
}
