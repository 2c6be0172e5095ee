-- Appends by id, so that a call that is resent has effect once. Each append has a key, which expires,
-- with its fingerprint and the number, or the name without spaces, of what it appended.

-- Returns both as text; nil: the append is unknown.
local function known_append(key)
  local known = redis.call('GET', key)
  if not known then return nil end
  return string.match(known, '^(.*) (%S+)$')
end

local function remember_append(key, fingerprint, appended, ms)
  redis.call('SET', key, fingerprint .. ' ' .. appended, 'PX', ms)
end
