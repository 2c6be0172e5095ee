-- Query results: `queries` holds the keys of those that are registered, each with the number of its
-- registration. A result is registered while a copy may be alive that no write has outdated.

local steps = {}

-- Arguments: the mark that is known. Answers the present one, how many there are, whether those
-- that follow are all, and those that are not known with their numbers.
steps.registered = function(first)
  local known, mark = tonumber(ARGV[first]), registrations
  local count = call('ZCARD', QUERIES)
  if known == mark then return { mark, count, 0, {} } end
  local whole = known == 0 or known > mark
  local from = whole and '-inf' or '(' .. ARGV[first]
  local found = call('ZRANGEBYSCORE', QUERIES, from, '+inf', 'WITHSCORES')
  return { mark, count, whole and 1 or 0, found }
end

-- All copies that were handed out until now are stale; later ones are registered anew. Arguments:
-- pairs of key, packed positions.
steps.changed = function(first, last)
  for at = first, last, 2 do
    local key = ARGV[at]
    local handed = tonumber(call('ZSCORE', HANDED, key) or 0)
    call('ZREM', QUERIES, key)
    if handed > now then
      call('ZADD', STALE, 'GT', handed, key)
      enter(key, ARGV[at + 1])
      if AGAIN_US then purges().owe(key) end
    end
  end
  return 1
end

return steps
