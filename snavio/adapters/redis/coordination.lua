-- The beginning of every coordination script. The rules of `snavio.domain` once more, because Redis decides where its
-- data is: a property test runs both on the same questions.
--
-- KEYS[1] is the epoch. ARGV[1] is {known, fresh, now, seen, waits}: the epoch the caller has known ('' for none), the
-- name of a new one, the time for tests (0: the server's), the highest count of calls that the caller has been told,
-- and whether the caller has every call confirmed by replicas. Every answer begins with the epoch's name and the
-- count: a store that has counted less than it has told came from a backup, or from a replica that was behind. A
-- replica that was promoted has the history of another server: it may lack what that one counted last, though no
-- caller that was told so is left; unless every call since the promotion before was confirmed.
local head = cjson.decode(ARGV[1])
local now = head[3]
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local found = redis.call('HMGET', KEYS[1], 'name', 'born', 'calls', 'replid', 'bare')
local epoch, born, calls = found[1], tonumber(found[2] or '0'), tonumber(found[3] or '0')
local info = redis.pcall('INFO', 'replication')
local replid, before = '', ''
if type(info) == 'string' then
  replid = string.match(info, 'master_replid:(%x+)') or ''
  before = string.match(info, 'master_replid2:(%x*)') or ''
end
local promoted = found[4] and replid ~= '' and found[4] ~= replid and string.find(before, '[^0]')
if not epoch then
  epoch = head[2]
  if head[1] ~= '' then born = now else born = 0 end
  redis.call('HSET', KEYS[1], 'name', epoch, 'born', string.format('%d', born))
elseif head[1] ~= '' and ((head[1] ~= epoch and born == 0) or (head[1] == epoch and calls < head[4])) then
  born = now
  redis.call('HSET', KEYS[1], 'born', string.format('%d', born))
end
if promoted and (found[5] or not head[5]) then
  born = now
  redis.call('HSET', KEYS[1], 'born', string.format('%d', born))
end
if replid ~= '' and found[4] ~= replid then
  redis.call('HSET', KEYS[1], 'replid', replid)
  redis.call('HDEL', KEYS[1], 'bare')
  found[5] = false
end
if not head[5] and not found[5] then redis.call('HSET', KEYS[1], 'bare', '1') end
if head[1] == epoch then calls = math.max(calls, head[4]) end
calls = calls + 1
redis.call('HSET', KEYS[1], 'calls', string.format('%d', calls))
local function int(number) return string.format('%d', number) end
