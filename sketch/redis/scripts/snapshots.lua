-- The filter as clients get it.

local steps = {}

steps.expire = function(first) return expire(ARGV[first]) end

-- Arguments: incarnation and generation of the bits that the client has. Answers incarnation,
-- generation, whether everything must be revalidated, and the bits if they are others.
steps.snapshot = function(first)
  if flipped then
    call('HINCRBY', META, 'generation', 1)
    flipped = false
  end
  local is = call('HMGET', META, 'incarnation', 'generation')
  if now < saturated then return { is[1], 0, 1, false } end
  local same = is[1] == ARGV[first] and is[2] == ARGV[first + 1]
  return { is[1], tonumber(is[2]), 0, not same and call('GET', BITS) }
end

return steps
