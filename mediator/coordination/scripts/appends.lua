-- Appends by id, so that one whose call is sent again is done once. Each has a key, which expires: its
-- fingerprint, and the number, or the name without spaces, of what was appended.

-- Returns both as text; nil: no such append is known.
local function known_append(key)
  local known = redis.call('GET', key)
  if not known then return nil end
  return string.match(known, '^(.*) (%S+)$')
end

local function remember_append(key, fingerprint, appended, ms)
  redis.call('SET', key, fingerprint .. ' ' .. appended, 'PX', ms)
end
