-- Reads one record with its collections. KEYS: class prefix. ARGV: id, names... (none: all).

return records().record_of(ARGV[1], { unpack(ARGV, 2) })
