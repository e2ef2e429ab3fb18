-- Permits under limits; follows coordination.lua.
--
-- ARGV[2] is a list of steps: {key, kind, ...}. Kind 'take' and 'grant': max, interval_ms, burst, cooldown_ms, shadow,
-- want, and for a grant instance and leases. Kind 'back': interval_ms, interval, count, granted.
local PARTS, SMALLEST, LOW, SLOT, SLOTS, BURST_LIFE, LONGEST, SMALL_RETRY, LEASE, DRIFT =
  20, 5, 10, 100, 11, 300, 30000, 10000, 1000, 500
local ISSUED, BY_SLOW, EXHAUSTED, NO_LEASE = 1, 3, 4, 5

local function life(left) return math.max(0, left - 1 - math.floor(left / DRIFT)) end

local function load(key)
  local row = redis.call('HMGET', key, 'm', 'i', 'u', 'g', 'c', 's', 'l', 'h', 'b')
  local usage = {
    m = tonumber(row[1] or '0'), i = tonumber(row[2] or '-1'), u = tonumber(row[3] or '0'),
    g = tonumber(row[4] or '0'), c = tonumber(row[5] or '0'), s = {}, l = tonumber(row[7] or '-1'), h = {},
    b = tonumber(row[9] or '0')}
  for slot, count in string.gmatch(row[6] or '', '(%d+):(%d+)') do
    usage.s[#usage.s + 1] = {tonumber(slot), tonumber(count)}
  end
  for holder in string.gmatch(row[8] or '', '[^,]+') do usage.h[#usage.h + 1] = holder end
  return usage
end

local function save(key, usage)
  local slots = {}
  for place, entry in ipairs(usage.s) do slots[place] = int(entry[1]) .. ':' .. int(entry[2]) end
  redis.call('HSET', key, 'm', int(usage.m), 'i', int(usage.i), 'u', int(usage.u), 'g', int(usage.g),
    'c', int(usage.c), 's', table.concat(slots, ','), 'l', int(usage.l),
    'h', table.concat(usage.h, ','), 'b', int(usage.b))
  local over = math.max((usage.i + 2) * usage.m, usage.c)
  redis.call('PEXPIRE', key, int(math.max(1000, over - now)))
end

local function settle(usage, rule)
  local interval = math.floor(now / rule.m)
  local moved_back = false
  local forgotten = 0 < born and interval * rule.m <= born
  if usage.m == rule.m then
    if usage.i == interval then
      if usage.b ~= born and forgotten then usage.u = math.max(usage.u, rule.max) end
      usage.b = born
      return
    end
    if usage.i == interval + 1 then return end
    moved_back = usage.i > interval
  elseif usage.i >= 0 and (usage.i + 1) * usage.m > interval * rule.m then
    usage.m, usage.i, usage.g, usage.b = rule.m, interval, 0, born
    if forgotten then usage.u = math.max(usage.u, rule.max) end
    return
  end
  usage.u = 0
  if moved_back or forgotten then usage.u = rule.max end
  usage.m, usage.i, usage.g, usage.b = rule.m, interval, 0, born
  if usage.c <= now then usage.c = 0 end
  if moved_back then
    usage.c, usage.s, usage.l, usage.h = math.min(usage.c, now + rule.cooldown), {}, -1, {}
  end
end

local function room_of(usage, rule)
  if now < usage.c and not rule.shadow then return 0 end
  if now < usage.i * rule.m then return 0 end
  local room = rule.max - usage.u
  if rule.burst > 0 then
    local oldest, sum = math.floor(now / SLOT) - SLOTS + 1, 0
    for _, entry in ipairs(usage.s) do
      if entry[1] >= oldest then sum = sum + entry[2] end
    end
    room = math.min(room, rule.burst - sum)
  end
  return math.max(0, room)
end

local function debit(usage, rule, count, last_use)
  if count <= 0 then return end
  local used = usage.u + count
  if rule.cooldown > 0 and used >= rule.max and usage.u < rule.max then usage.c = now + rule.cooldown end
  if rule.burst > 0 then
    local oldest, last, kept, seen = math.floor(now / SLOT) - SLOTS + 1, math.floor(last_use / SLOT), {}, false
    for _, entry in ipairs(usage.s) do
      if entry[1] >= oldest then
        if entry[1] == last then entry[2] = entry[2] + count; seen = true end
        kept[#kept + 1] = entry
      end
    end
    if not seen then kept[#kept + 1] = {last, count} end
    table.sort(kept, function(left, right) return left[1] < right[1] end)
    usage.s = kept
  end
  usage.u = used
end

local function permits(usage, rule, count, state, refused)
  local ends = (usage.i + 1) * rule.m
  local retry, free = 0, 0
  if refused then
    free = now
    if usage.u >= rule.max then free = ends end
    if rule.burst > 0 and usage.u < rule.max and usage.s[1] then
      free = math.min(ends, (usage.s[1][1] + SLOTS) * SLOT)
    end
    free = math.max(free, usage.c, usage.i * rule.m)
    retry = math.max(1, free - now)
  end
  local lives = 0
  if count > 0 then lives = life(ends - now) end
  return {count, state, usage.i, ends, lives, retry, usage.u, 0, free}
end

local function take(usage, rule, want)
  settle(usage, rule)
  local room = room_of(usage, rule)
  local count = want
  if not rule.shadow then count = math.min(want, room) end
  debit(usage, rule, count, now)
  local state = EXHAUSTED
  if count > 0 then state = ISSUED end
  local refused = count < want
  if want == 0 then refused = room == 0 end
  local answer = permits(usage, rule, count, state, refused)
  if rule.shadow then answer[8] = math.max(0, want - room) end
  return answer
end

local function grant(usage, rule, want, instance, leases)
  settle(usage, rule)
  local most, room = math.floor(rule.max / PARTS), room_of(usage, rule)
  local refused = permits(usage, rule, 0, EXHAUSTED, true)
  if rule.shadow then
    most, room = math.max(most, SMALLEST), want
  elseif most < SMALLEST then
    refused[2], refused[6] = BY_SLOW, SMALL_RETRY
    return refused
  elseif room <= 0 then
    return refused
  elseif rule.max - usage.u <= math.floor(rule.max / LOW) or room < SMALLEST then
    refused[2] = BY_SLOW
    return refused
  end
  local slot = math.floor(now / LEASE)
  local holders, holds = {}, false
  if usage.l == slot then holders = usage.h end
  for _, holder in ipairs(holders) do holds = holds or holder == instance end
  if not holds then
    if #holders >= leases then
      refused[2], refused[6] = NO_LEASE, (slot + 1) * LEASE - now
      return refused
    end
    holders[#holders + 1] = instance
  end
  usage.l, usage.h = slot, holders
  local ends = (usage.i + 1) * rule.m
  local longest = LONGEST
  if rule.burst > 0 then longest = BURST_LIFE end
  local last_use = math.min(ends, now + longest)
  local count = math.min(want, most, room)
  local over = 0
  if rule.shadow then over = math.max(0, count - math.max(0, rule.max - usage.u)) end
  debit(usage, rule, count, last_use)
  usage.g = usage.g + count
  local answer = permits(usage, rule, count, ISSUED, false)
  answer[5], answer[8] = life(last_use - now), over
  return answer
end

local function give_back(usage, interval_ms, interval, count, granted)
  if usage.i ~= interval or usage.m ~= interval_ms then return end
  if granted then count = math.min(count, usage.g) else count = math.min(count, usage.u - usage.g) end
  if count <= 0 then return end
  usage.u = usage.u - count
  if granted then usage.g = usage.g - count end
end

local answers = {epoch, calls}
for _, step in ipairs(cjson.decode(ARGV[2])) do
  local key = KEYS[step[1]]
  local usage = load(key)
  if step[2] == 'back' then
    give_back(usage, step[3], step[4], step[5], step[6])
    if usage.i >= 0 then save(key, usage) end
  else
    local rule = {max = step[3], m = step[4], burst = step[5], cooldown = step[6], shadow = step[7]}
    if step[2] == 'take' then
      answers[#answers + 1] = take(usage, rule, step[8])
    else
      answers[#answers + 1] = grant(usage, rule, step[8], step[9], step[10])
    end
    save(key, usage)
  end
end
return cjson.encode(answers)
