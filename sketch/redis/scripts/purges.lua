-- Purges: `owed` holds the times at or after which a key must be purged, `purges` the time at which
-- the key is handed out next. A purge that starts later serves all times before it. Its ticket is
-- the last of these: it stays the same when repeated, unless another time has come.

local steps = {}

local function times_of(key)
  local times = {}
  for time in string.gmatch(call('HGET', OWED, key) or '', '%d+') do
    times[#times + 1] = tonumber(time)
  end
  return times
end

local function forget(key)
  call('ZREM', PURGES, key)
  call('HDEL', OWED, key)
end

local function set_owed(key, times)
  local texts = {}
  for i, time in ipairs(times) do texts[i] = string.format('%.0f', time) end
  call('HSET', OWED, key, table.concat(texts, ' '))
  call('ZADD', PURGES, math.min(unpack(times)), key)
end

-- Owes a purge now, and one after the longest fill; the latter are rounded up to a quarter of it,
-- so that a key that is written continuously owes only a few. The first is due a microsecond from
-- now: a purge handed out at this instant does not serve it.
steps.owe = function(key)
  local due = now + 1
  local again = math.ceil((due + AGAIN_US) / AGAIN_STEP_US) * AGAIN_STEP_US
  local owed = { due, again }
  for _, time in ipairs(times_of(key)) do
    if time > due and time ~= again then owed[#owed + 1] = time end
  end
  set_owed(key, owed)
end

local function ticket_of(key)
  local ticket = 0
  for _, time in ipairs(times_of(key)) do
    if time <= now then ticket = math.max(ticket, time) end
  end
  return ticket
end

-- Arguments: the limit. Returns pairs of key, ticket. A purge whose copies have all expired is
-- dropped: a purger that is down must not let the queue grow.
steps.take_purges = function(first)
  local taken = {}
  for _, key in ipairs(call('ZRANGEBYSCORE', PURGES, '-inf', now, 'LIMIT', 0, ARGV[first])) do
    if now < saturated or tonumber(call('ZSCORE', COPIES, key) or 0) > now then
      call('ZADD', PURGES, now + PURGE_LEASE_US, key)
      taken[#taken + 1] = key
      taken[#taken + 1] = ticket_of(key)
    else
      forget(key)
    end
  end
  return taken
end

-- Arguments: pairs of key, ticket.
steps.acknowledge_purges = function(first, last)
  for at = first, last, 2 do
    local key, ticket, owed = ARGV[at], tonumber(ARGV[at + 1]), {}
    for _, time in ipairs(times_of(key)) do
      if time > ticket then owed[#owed + 1] = time end
    end
    if #owed > 0 then
      set_owed(key, owed)
    else
      forget(key)
    end
  end
  return 1
end

return steps
