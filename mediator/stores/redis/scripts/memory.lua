-- Remembered operations: a retry of an applied operation gets the original result. Dropping a class
-- begins a new generation of it, so that earlier operations are not remembered.

local call = redis.call

local function generation() return call('GET', prefix .. 'generation') or '0' end

local function key_of(row)
  return prefix .. 'o:' .. #row.id .. ':' .. row.id .. ':' .. row.operation
end

-- Returns whether the operation is known, whether its fingerprint is the same, and the entry.
local function recall(row)
  local key = key_of(row)
  local known = call('HMGET', key, 'generation', 'fingerprint')
  if known[1] ~= generation() then return false end
  if known[2] ~= row.fingerprint then return true, false end
  return true, true, call('HGETALL', key)
end

local function remember(row, created, creation_version, names, versions, values, ttl)
  local fields = { 'generation', generation(), 'fingerprint', row.fingerprint,
    'created', created, 'creation_version', creation_version }
  for i, version in ipairs(versions) do
    fields[#fields + 1] = 'version.' .. string.sub(names[i + 1], 2)
    fields[#fields + 1] = version
  end
  for i = 1, #values, 2 do
    fields[#fields + 1] = 'value.' .. values[i]
    fields[#fields + 1] = values[i + 1]
  end
  local key = key_of(row)
  call('DEL', key)
  records().in_parts('HSET', key, fields)
  call('PEXPIRE', key, ttl)
end

return { recall = recall, remember = remember }
