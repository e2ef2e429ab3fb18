-- Claims of strict ids; follows coordination.lua.
--
-- ARGV[2]: {kind, owner, lease_ms, keep_ms, max_claims, max_per_source}. ARGV[3]: a list of {key, source, payload}
-- with KEYS[2] the counter of all, KEYS[3..] claims and counters. A counter is a hash by minute, so that expired
-- claims leave it without being searched for.
local NEW, TAKEN_OVER, DUPLICATE, CONFLICT, PENDING, UNKNOWN = 1, 2, 3, 4, 5, 6
local terms = cjson.decode(ARGV[2])
local kind, owner, lease, keep, most, share = terms[1], terms[2], terms[3], terms[4], terms[5], terms[6]
local minute = math.floor(now / 60000)
local oldest = math.floor((now - keep) / 60000)

local function living(counter)
  local sum, rows = 0, redis.call('HGETALL', counter)
  for place = 1, #rows, 2 do
    if tonumber(rows[place]) < oldest then redis.call('HDEL', counter, rows[place])
    else sum = sum + tonumber(rows[place + 1]) end
  end
  return sum
end

local function load(key)
  local row = redis.call('HMGET', key, 'p', 'o', 'd', 'l', 'e', 'b')
  if not row[1] then return nil end
  return {p = row[1], o = row[2], d = row[3] == '1', l = tonumber(row[4]), e = tonumber(row[5]), b = row[6]}
end

local function save(key, claim)
  local done = '0'
  if claim.d then done = '1' end
  redis.call('HSET', key, 'p', claim.p, 'o', claim.o, 'd', done, 'l', int(claim.l), 'e', int(claim.e), 'b', claim.b)
  -- Once more than asked for: what is over is judged by its own time, the server's expiry only tidies up.
  redis.call('PEXPIRE', key, int(math.max(1000, claim.e - now + 1000)))
end

local function count(counter, bucket, change)
  redis.call('HINCRBY', counter, bucket, change)
  redis.call('PEXPIRE', counter, int(keep + 120000))
end

local entries = cjson.decode(ARGV[3])
local answers = {epoch, calls}
if kind == 'claim' then
  -- Judged before anything is claimed: all of a batch, or none. Refused, never evicted.
  local wanted, wanted_all = {}, 0
  for _, entry in ipairs(entries) do
    local found = load(KEYS[entry[1]])
    if not found or found.e <= now then
      wanted[entry[2]] = (wanted[entry[2]] or 0) + 1
      wanted_all = wanted_all + 1
    end
  end
  local full = wanted_all > 0 and living(KEYS[2]) + wanted_all > most
  for counter, number in pairs(wanted) do full = full or living(KEYS[counter]) + number > share end
  if full then return cjson.encode({epoch, calls, 'full'}) end
end
for _, entry in ipairs(entries) do
  local key, counter, payload = KEYS[entry[1]], KEYS[entry[2]], entry[3]
  local found = load(key)
  if kind == 'claim' or kind == 'look up' then
    local answer, retry, delivered = NEW, 0, 0
    local asked = kind == 'look up'
    if asked and found then payload = found.p end
    local owned = {p = payload, o = owner, d = false, l = now + lease, e = now + keep, b = int(minute)}
    if not found or found.e <= now then
      local forgotten = 0
      if born > 0 then forgotten = born + keep end
      if now < forgotten then
        answer, retry = UNKNOWN, forgotten - now
      elseif not asked then
        save(key, owned)
        count(KEYS[2], owned.b, 1)
        count(counter, owned.b, 1)
      end
    elseif found.p ~= payload then
      answer = CONFLICT
    elseif found.d then
      answer, delivered = DUPLICATE, found.e - keep
    elseif now < found.l then
      answer, retry = PENDING, math.min(found.l - now, lease)
      found.l = now + retry
      if not asked then save(key, found) end
    else
      answer = TAKEN_OVER
      owned.b = found.b
      if not asked then save(key, owned) end
    end
    answers[#answers + 1] = {answer, int(retry), int(delivered)}
  elseif kind == 'commit' then
    if found and found.o == owner then
      found.d, found.e = true, now + keep
      save(key, found)
    end
  elseif found and found.o == owner and not found.d then
    redis.call('DEL', key)
    count(KEYS[2], found.b, -1)
    count(counter, found.b, -1)
  end
end
return cjson.encode(answers)
