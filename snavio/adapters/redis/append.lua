-- Appends commands to a stream. All or nothing of it runs, and a delivery that was made before is told and not made
-- again: the answer to the first one may have been lost with the connection. Entries that do not fit are left out from
-- the end.
--
-- KEYS: the stream, the mark of this delivery. ARGV: the stream's greatest length, seconds that the mark lives, runs.
local known = redis.call('GET', KEYS[2])
if known then return tonumber(known) end
local room = tonumber(ARGV[1]) - redis.call('XLEN', KEYS[1])
local stored = math.max(0, math.min(room, #ARGV - 2))
for i = 1, stored do redis.call('XADD', KEYS[1], '*', 'run', ARGV[i + 2]) end
redis.call('SET', KEYS[2], stored, 'EX', ARGV[2])
return stored
