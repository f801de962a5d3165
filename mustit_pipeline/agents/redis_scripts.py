"""The limiter's Lua: every script is one atomic step on Redis's clock.

Keys under one prefix: `epoch` (whose counts these are), `ids`, `waiting` (agents by the time they are free), `ready`
(free agents by rank), `a:<id>` (an agent's facts and its open booking) and `e:<id>` (when its last answers arrived). A
script that does not find its epoch's counts returns `forgot`, one that finds them incomplete `damaged`. Times are
microseconds. Numbers are passed to Redis as numbers: Lua's conversion to text keeps only 14 digits.
"""

_COMMON = """
local p, call = KEYS[1], redis.call
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
local now, N, W, G = clock(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- Token first, then health, then the milliseconds since it was last used: one number that sorts like all three.
local function rank(health, token, used)
  local unused = math.max(0, math.floor(used / 1000) - 1577836800000)
  return (token > now and 0 or 2 ^ 47) + (100 - health) * 2 ^ 40 + unused
end

-- When an agent with n recorded answers is free again, its open booking counting as answered when it expires.
local function free_at(e, n, open)
  local last, count = open, n
  if open then count = n + 1 else last = tonumber(call('LINDEX', e, -1) or 0) end
  local free = last + G
  if count >= N then
    local first = count - N
    local oldest = first < n and tonumber(call('LINDEX', e, first)) or open
    free = math.max(free, oldest + W)
  end
  return free
end

-- Record an answer; keeps the newest N, and of those only what a window still reaches.
local function record(e, n, at)
  local last = tonumber(call('LINDEX', e, -1) or 0)
  call('RPUSH', e, math.max(at, last))
  n = n + 1
  for _ = 1, 8 do
    if n > N or (n > 1 and tonumber(call('LINDEX', e, 0)) + W < now) then
      call('LPOP', e)
      n = n - 1
    else
      break
    end
  end
  return n
end
"""

_AUTHENTIC = """
if call('GET', p .. 'epoch') ~= ARGV[1] then return {'forgot'} end
"""

ACQUIRE = (
    _COMMON
    + _AUTHENTIC
    + """
local hold, booked = tonumber(ARGV[6]), {}
for _, id in ipairs(call('ZRANGEBYSCORE', p .. 'waiting', '-inf', now)) do
  local a = p .. 'a:' .. id
  local h = call('HMGET', a, 'health', 'token', 'used', 'n', 'b', 'x')
  if not h[4] then return {'damaged'} end
  if h[5] and h[5] ~= '' then
    local n = record(p .. 'e:' .. id, tonumber(h[4]), tonumber(h[6]))
    call('HSET', a, 'b', '', 'n', n)
  end
  call('ZREM', p .. 'waiting', id)
  call('ZADD', p .. 'ready', rank(tonumber(h[1]), tonumber(h[2]), tonumber(h[3])), id)
end
for i = 7, #ARGV do
  local id
  while not id do
    local best = call('ZRANGE', p .. 'ready', 0, 0, 'WITHSCORES')
    if not best[1] then
      local first = call('ZRANGE', p .. 'waiting', 0, 0, 'WITHSCORES')
      if first[1] then return {'wait', math.max(1, math.ceil(tonumber(first[2]) - now)), table.concat(booked, ' ')} end
      for _, known in ipairs(call('SMEMBERS', p .. 'ids')) do
        if call('HGET', p .. 'a:' .. known, 'on') == '1' then return {'damaged'} end
      end
      return {'none', 0, table.concat(booked, ' ')}
    end
    id = best[1]
    local a, e = p .. 'a:' .. id, p .. 'e:' .. id
    local h = call('HMGET', a, 'health', 'token', 'used', 'n', 'no')
    local n = tonumber(h[4])
    if not n or call('LLEN', e) ~= n then return {'damaged'} end
    if tonumber(best[2]) < 2 ^ 47 and tonumber(h[2]) <= now then
      call('ZADD', p .. 'ready', rank(tonumber(h[1]), 0, tonumber(h[3])), id)
      id = nil
    else
      local expires = now + hold
      call('HSET', a, 'b', ARGV[i], 'x', expires, 'used', now)
      call('ZREM', p .. 'ready', id)
      call('ZADD', p .. 'waiting', free_at(e, n, expires), id)
      booked[#booked + 1] = id
      booked[#booked + 1] = h[5]
    end
  end
end
return {'booked', 0, table.concat(booked, ' ')}
"""
)

# One script for the answer and for a request that was never sent: only an answer is recorded.
END = (
    _COMMON
    + _AUTHENTIC
    + """
for i = 6, #ARGV, 4 do
  local id, booking, sent, pause = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1', tonumber(ARGV[i + 3])
  local a, e = p .. 'a:' .. id, p .. 'e:' .. id
  local h = call('HMGET', a, 'n', 'b', 'x', 'on')
  local n = tonumber(h[1])
  if not n or call('LLEN', e) ~= n then return {'damaged'} end
  local open = h[2] ~= '' and tonumber(h[3]) or nil
  local ours = h[2] == booking
  if ours then
    open = nil
    call('HSET', a, 'b', '')
  end
  -- An answer that comes after its booking expired is counted once more: it may have been sent as late as that.
  if sent then
    n = record(e, n, now)
    call('HSET', a, 'n', n)
  end
  if ours or sent then
    call('ZREM', p .. 'ready', id)
    if h[4] == '1' then
      call('ZADD', p .. 'waiting', math.max(free_at(e, n, open), now + pause), id)
    end
  end
end
return {'ended'}
"""
)

PUBLISH = (
    _COMMON
    + """
if call('GET', p .. 'epoch') ~= ARGV[1] and call('GET', p .. 'seeding') ~= ARGV[1] then return {'forgot'} end
for i = 6, #ARGV, 6 do
  local id, revision, on, health, token, no = unpack(ARGV, i, i + 5)
  local a, e = p .. 'a:' .. id, p .. 'e:' .. id
  local h = call('HMGET', a, 'rev', 'n', 'b', 'x', 'used', 'on')
  local n = tonumber(h[2] or 0)
  -- An agent's facts, its id and, while it may be used, its place in a list go together.
  local listed = call('ZSCORE', p .. 'ready', id) or call('ZSCORE', p .. 'waiting', id)
  if call('SADD', p .. 'ids', id) == (h[2] and 1 or 0) or (h[6] == '1' and not listed) then return {'damaged'} end
  if not h[2] then call('HSET', a, 'n', 0, 'b', '', 'x', 0, 'used', 0) end
  if not h[1] or tonumber(revision) > tonumber(h[1]) then
    token = now + tonumber(token)
    call('HSET', a, 'rev', revision, 'on', on, 'health', health, 'token', token, 'no', no)
    if on == '0' then
      call('ZREM', p .. 'ready', id)
      call('ZREM', p .. 'waiting', id)
    elseif call('ZSCORE', p .. 'ready', id) then
      call('ZADD', p .. 'ready', rank(tonumber(health), token, tonumber(h[5])), id)
    elseif not listed then
      local open = h[3] and h[3] ~= '' and tonumber(h[4]) or nil
      call('ZADD', p .. 'waiting', free_at(e, n, open), id)
    end
  end
end
return {'published'}
"""
)

# A seed never replaces a newer one: a delayed worker must not bring old counts back.
SEED_BEGIN = """
local p, call = KEYS[1], redis.call
local epoch, seeding = ARGV[1], ARGV[2]
local newest = math.max(tonumber(call('GET', p .. 'epoch') or -1), tonumber(call('GET', p .. 'seeding_epoch') or -1))
if newest > tonumber(epoch) then return {'forgot'} end
for _, id in ipairs(call('SMEMBERS', p .. 'ids')) do call('DEL', p .. 'a:' .. id, p .. 'e:' .. id) end
call('DEL', p .. 'epoch', p .. 'ids', p .. 'ready', p .. 'waiting')
call('SET', p .. 'seeding', seeding)
call('SET', p .. 'seeding_epoch', epoch)
return {'seeding'}
"""

SEED_ENDS = (
    _COMMON
    + """
if call('GET', p .. 'seeding') ~= ARGV[1] then return {'forgot'} end
local id, booking, expires = ARGV[6], ARGV[7], tonumber(ARGV[8])
local a, e = p .. 'a:' .. id, p .. 'e:' .. id
-- What an older seed has left behind is no part of this one.
if call('SADD', p .. 'ids', id) == 1 then call('DEL', a, e) end
local last = 0
for i = 9, #ARGV do
  last = now + tonumber(ARGV[i])
  call('RPUSH', e, last)
end
call('HSET', a, 'n', call('LLEN', e), 'b', booking, 'x', now + expires, 'used', last)
return {'seeded'}
"""
)

SEED_COMMIT = """
local p, call = KEYS[1], redis.call
if call('GET', p .. 'seeding') ~= ARGV[2] then return {'forgot'} end
call('DEL', p .. 'seeding')
call('SET', p .. 'epoch', ARGV[1])
return {'ready'}
"""

SCRIPTS = (ACQUIRE, END, PUBLISH, SEED_BEGIN, SEED_ENDS, SEED_COMMIT)
