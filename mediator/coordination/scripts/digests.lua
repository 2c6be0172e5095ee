-- Digests of numbered results: each is that of the one before and of the result's content.
-- `mediator.model.result_position` says what they are for.

-- Returns the digest in the position after the last result ('' or false: there was none).
local function digest_in(position)
  return string.match(position or '', '-(%x+)$') or ''
end

local function digest_after(digest, content)
  return string.sub(redis.sha1hex(digest .. content), 1, 16)
end
