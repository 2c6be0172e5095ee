-- Digests of numbered results: each covers the digest before it and the result's content.
-- `mediator.model.result_position` explains their purpose.

-- Returns the digest in the position after the last result, which is '' or false if there was none.
local function digest_in(position)
  return string.match(position or '', '-(%x+)$') or ''
end

local function digest_after(digest, content)
  return string.sub(redis.sha1hex(digest .. content), 1, 16)
end
