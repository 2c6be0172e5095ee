-- Removes a batch of records and tombstones. KEYS: class prefix. ARGV: limit.
-- Returns how many were removed.

local removed = 0
for _, index in ipairs({ 'ids', 'tombstones' }) do
  local ids = redis.call('ZRANGE', prefix .. index, 0, ARGV[1] - 1)
  for _, id in ipairs(ids) do
    for name, text in pairs(records().pairs_of(redis.call('HGETALL', records().record_key(id)))) do
      if records().MARKERS[text] then redis.call('UNLINK', records().native_key(name, id)) end
    end
    redis.call('UNLINK', records().record_key(id))
  end
  if #ids > 0 then records().in_parts('ZREM', prefix .. index, ids) end
  removed = removed + #ids
end
return removed
