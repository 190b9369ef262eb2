"""The rules of `throttler.core.quota_ledger` as Lua, run atomically inside Redis, by Redis's clock in milliseconds.

All keys carry one hash tag, so that in a cluster they live on one node.
"""

GATEWAYS = "{fairlead}:gateways"  # sorted set: gateway -> time of its last heartbeat
JOINED = "{fairlead}:joined"  # sorted set: gateway -> time of its first heartbeat
EPOCH = "{fairlead}:epoch"  # set once: a different value means that Redis has lost all data
RECALLS = "{fairlead}:recalls"  # channel: "<gateway> <limit> <account>"
ACCOUNT = "{fairlead}:account:"  # hash: gateway -> "capacity:used:at"
RECALLED = "{fairlead}:recalled:"  # set while the last recall is too recent for another one

CLOCK = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

# KEYS: gateways, joined, epoch. ARGV: gateway, window.
BEAT = """
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZADD', KEYS[2], 'NX', now, ARGV[1])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
end
redis.call('SET', KEYS[3], ARGV[1] .. ':' .. now, 'NX')
return {redis.call('ZCARD', KEYS[1]), redis.call('GET', KEYS[3])}
"""

# KEYS: account, joined, recalled. ARGV: gateway, window, limit, held, used, more, gateways, time between recalls,
# channel, account's name.
ASK = """
local me, window, limit, held = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local used, more, gateways = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local taken, known = 0, {[me] = true}
local entries = redis.call('HGETALL', KEYS[1])
for i = 1, #entries, 2 do
  local their_capacity, their_used, at = string.match(entries[i + 1], '(%d+):(%d+):(%d+)')
  if at + 2 * window <= now then
    redis.call('HDEL', KEYS[1], entries[i])
  elseif entries[i] ~= me then
    if at + window <= now then their_used = 0 end
    taken = taken + math.max(their_capacity, their_used)
    known[entries[i]] = true
  end
end
local settled, quiet = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - window), 0
for _, name in ipairs(settled) do
  if not known[name] then quiet = quiet + 1 end
end
local unasked = quiet * math.floor(limit / (2 * math.max(1, #settled)))
local room = limit - taken - unasked
local base, capacity, recalled = math.max(held, used), 0, 0
local lacking = math.max(1, used + more - base)
if base + lacking <= room then
  capacity = base
  if more > 0 then capacity = base + math.max(lacking, math.floor((room - base) / (2 * gateways))) end
else
  capacity = math.max(0, math.min(held, room))
  if more > 0 and taken + unasked > 0 and redis.call('SET', KEYS[3], 1, 'NX', 'PX', ARGV[8]) then
    redis.call('PUBLISH', ARGV[9], me .. ' ' .. limit .. ' ' .. ARGV[10])
    recalled = 1
  end
end
redis.call('HSET', KEYS[1], me, string.format('%d:%d:%d', capacity, used, now))
redis.call('PEXPIRE', KEYS[1], 2 * window)
return {capacity, recalled}
"""
