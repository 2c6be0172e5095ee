-- Appends by id, so that one whose call is sent again is done once. Each has a key, which expires: its
-- fingerprint, and the number of the last that was appended.

-- Returns both; nil: no such append is known.
local function known_append(key)
  local known = redis.call('GET', key)
  if not known then return nil end
  local fingerprint, number = string.match(known, '^(.*) (%d+)$')
  return fingerprint, tonumber(number)
end

local function remember_append(key, fingerprint, number, ms)
  redis.call('SET', key, fingerprint .. ' ' .. string.format('%.0f', number), 'PX', ms)
end
