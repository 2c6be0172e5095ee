-- The filter for clients.

local steps = {}

-- Arguments: generation and revision of the bits that the client has. Returns generation,
-- revision, whether everything must be revalidated, and the bits if the client lacks them.
steps.snapshot = function(first)
  if flipped then
    call('HINCRBY', META, 'revision', 1)
    flipped = false
  end
  local current = call('HMGET', META, 'generation', 'revision')
  if now < saturated then return { current[1], 0, 1, false } end
  local same = current[1] == ARGV[first] and current[2] == ARGV[first + 1]
  return { current[1], tonumber(current[2]), 0, not same and call('GET', BITS) }
end

return steps
