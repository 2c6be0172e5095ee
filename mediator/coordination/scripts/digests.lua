-- Digests of numbered results: each is that of the one before and of the result's content.
-- `mediator.model.result_position` says what they are for.

-- Returns the digest of all results up to a number, of the position that is known ('' or false: none is); '' if a
-- version that computed none has added to them.
local function digest_at(known, number)
  local at, digest = string.match(known or '', '^(%d+)-(%x+)$')
  return tonumber(at) == number and digest or ''
end

local function digest_after(digest, content)
  return string.sub(redis.sha1hex(digest .. content), 1, 16)
end
