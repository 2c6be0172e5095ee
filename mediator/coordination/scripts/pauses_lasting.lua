-- Returns the current pauses: {id, version and number of the rule, remaining ms, ...}.

local found = {}
for _, id in ipairs(redis.call('HKEYS', base .. 'pauses')) do
  local left, rule = paused_ms(id)
  if left then
    for _, each in ipairs({id, rule, left}) do found[#found + 1] = each end
  end
end
return found
