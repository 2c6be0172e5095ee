-- Takes the remaining steps, one after the other.

local module_of = {
  invalidate = layout, remove = layout, layout = layout, adopt = layout,
  snapshot = snapshots,
  take_purges = purges, acknowledge_purges = purges, report_query = queries,
  registrations = queries, invalidate_results = queries, begin = writes, ['end'] = writes, close = writes, orphans = writes,
  report_read = reads, fill = reads, state = state,
}

-- Maintenance does not create a partition: it may have been removed.
local other = at
while not known_run
  and (ARGV[other] == 'orphans' or ARGV[other] == 'take_purges' or ARGV[other] == 'remove') do
  other = other + 2 + ARGV[other + 1]
end
if known_run ~= run_id and (other == at or ARGV[other]) then layout().lost() end
expire(ARGV[4])
while ARGV[at] do
  local name, last = ARGV[at], at + 1 + ARGV[at + 1]
  results[#results + 1] = module_of[name]()[name](at + 2, last)
  at = last + 1
end
if flipped then call('HINCRBY', META, 'revision', 1) end
return results
