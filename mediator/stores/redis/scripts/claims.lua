-- Claims of unique constraints: the last key is a hash of the class with the key of the record, by
-- constraint and claim. The hash of a record has its claims ('!u' and the constraint), and its
-- reservations under its intent ('!r' and the constraint). A claim that its record does not have is
-- free: so a leftover claim, after its intent expired, does no harm.

local call = redis.call
local claimed = KEYS[#KEYS]

local function name_of(constraint, claim) return constraint .. ':' .. claim end

-- The first of these claims that another record has: constraint, its key, and the
-- intent under which it is reserved ('': claimed).
local function taken(constraints, claims, key)
  for i, constraint in ipairs(constraints) do
    local claim = claims[i]
    local holder = claim ~= '' and call('HGET', claimed, name_of(constraint, claim))
    if holder and holder ~= key then
      local held = call('HMGET', holder, '!u' .. constraint, '!r' .. constraint, '!m')
      if held[1] == claim then return { constraint, holder, '' } end
      if held[2] == claim and held[3] then return { constraint, holder, held[3] } end
    end
  end
end

local function give_up(kind, constraint, key)
  local claim = call('HGET', key, kind .. constraint)
  if not claim then return end
  call('HDEL', key, kind .. constraint)
  local name = name_of(constraint, claim)
  if call('HGET', claimed, name) == key then call('HDEL', claimed, name) end
end

local function put(kind, constraint, claim, key)
  call('HSET', key, kind .. constraint, claim)
  call('HSET', claimed, name_of(constraint, claim), key)
end

local function release(constraints, key)
  for _, constraint in ipairs(constraints) do
    give_up('!u', constraint, key)
    give_up('!r', constraint, key)
  end
end

local function take(constraints, claims, key)
  for i, constraint in ipairs(constraints) do
    if claims[i] ~= '' then put('!u', constraint, claims[i], key) end
  end
end

local function reserve(constraints, claims, key)
  for i, constraint in ipairs(constraints) do
    if call('HGET', key, '!u' .. constraint) ~= claims[i] then
      put('!r', constraint, claims[i], key)
    end
  end
end

-- Releases the reservations, except those that the record also claims.
local function cancel(constraints, key)
  for _, constraint in ipairs(constraints) do give_up('!r', constraint, key) end
end

return { taken = taken, release = release, take = take, reserve = reserve, cancel = cancel }
