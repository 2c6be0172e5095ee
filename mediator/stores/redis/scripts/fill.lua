-- Adds a batch of records to indexes. KEYS: class prefix. ARGV: last id seen ('' at first), limit,
-- names of the indexes... Returns the last id of the batch, or false when there is none left.

local after = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local ids = redis.call('ZRANGEBYLEX', prefix .. 'ids', after, '+', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  for i = 3, #ARGV do
    local name = ARGV[i]
    if multi().fields_of[name] then
      multi().move({ [name] = {} }, id)
    else
      local text = redis.call('HGET', records().record_key(id), name)
      redis.call('ZADD', prefix .. 'i.' .. name, 0, sortable().member_of(text, id))
    end
  end
end
return ids[#ids] or false
