-- Counts of warm bans; follows coordination.lua.
--
-- ARGV[2] is {within_ms, most, {window_ms ...}}; KEYS[2..] are the counted triples, each with its window.
local terms = cjson.decode(ARGV[2])
local within, most, windows = terms[1], terms[2], terms[3]
local answers = {epoch, calls}
for place = 2, #KEYS do
  local kept = {}
  for time in string.gmatch(redis.call('GET', KEYS[place]) or '', '%d+') do
    local at = tonumber(time)
    if now - within < at and at <= now then kept[#kept + 1] = time end
  end
  if #kept == 0 or now - tonumber(kept[#kept]) >= windows[place - 1] then
    kept[#kept + 1] = int(now)
    while #kept > most do table.remove(kept, 1) end
    redis.call('SET', KEYS[place], table.concat(kept, ','), 'PX', int(within))
  end
  answers[#answers + 1] = #kept
end
return cjson.encode(answers)
