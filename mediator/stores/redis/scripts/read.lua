-- Reads one record with its collections. KEYS: class prefix. ARGV: id, names... (none: all).

local names = {}
for i = 2, #ARGV do names[i - 1] = ARGV[i] end
return records().record_of(ARGV[1], names)
