-- Removes fields from a batch of records. KEYS: class prefix. ARGV: last id seen ('' at first),
-- limit, names of the fields... Returns the last id of the batch, or false when there is none left.

local after = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local ids = redis.call('ZRANGEBYLEX', prefix .. 'ids', after, '+', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  for i = 3, #ARGV do
    local key = records().record_key(id)
    local text = redis.call('HGET', key, ARGV[i])
    if records().MARKERS[text] then redis.call('UNLINK', records().native_key(ARGV[i], id)) end
    if text then redis.call('HDEL', key, ARGV[i]) end
  end
end
return ids[#ids] or false
