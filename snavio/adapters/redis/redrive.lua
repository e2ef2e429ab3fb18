-- Puts dead letters back at the end of their stream, each in one step; what is gone already is skipped.
--
-- KEYS: the stream, its dead letters. ARGV: the stream's greatest length, then ids of dead letters.
local moved = 0
for i = 2, #ARGV do
  if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then break end
  local found = redis.call('XRANGE', KEYS[2], ARGV[i], ARGV[i])
  if #found == 1 then
    local fields = found[1][2]
    for f = 1, #fields, 2 do
      if fields[f] == 'run' then redis.call('XADD', KEYS[1], '*', 'run', fields[f + 1]) end
    end
    redis.call('XDEL', KEYS[2], ARGV[i])
    moved = moved + 1
  end
end
return moved
