-- Moves entries of a stream to its dead letters: added there, acknowledged and deleted here, in one step. An entry that
-- is gone already is skipped, and nothing is moved into dead letters that are full: they are never trimmed.
--
-- KEYS: the stream, its dead letters. ARGV: group, greatest length of the dead letters, time in ms, then id, reason and
-- attempts of each entry.
local moved = 0
for i = 4, #ARGV, 3 do
  if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then break end
  local found = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])
  if #found == 1 then
    local fields = found[1][2]
    local run = ''
    for f = 1, #fields, 2 do if fields[f] == 'run' then run = fields[f + 1] end end
    redis.call('XADD', KEYS[2], '*', 'run', run, 'reason', ARGV[i + 1], 'attempts', ARGV[i + 2],
      'died_ms', ARGV[3], 'was', ARGV[i])
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    redis.call('XDEL', KEYS[1], ARGV[i])
    moved = moved + 1
  else
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  end
end
return moved
