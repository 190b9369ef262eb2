"""The counters that pickers keep in common (core/service_counters.py), as Lua that Redis runs as one step."""

# KEYS: hash of counters by account; sorted set of accounts by the version of their last change; the version; the
# origin, a word that changes when data was lost; the number of this picker's last batch.
# ARGV: the origin and the version that the picker knows, a new word for an origin, the batch's number, the accounts to
# keep, the accounts to tell, seconds to keep all; then account, floor and added of each change.
# Returns the origin, and if it is the picker's: the new version, and accounts with their counters: those of the batch,
# and those that have changed since.
EXCHANGE = """
local counters, changed, version, origin, batch = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local known = redis.call('GET', origin)
local at = tonumber(redis.call('GET', version) or '0')
if not known or at < tonumber(ARGV[2]) then
  known = ARGV[3]
  redis.call('SET', origin, known)
end
if ARGV[1] ~= '' and ARGV[1] ~= known then return {known} end

local told = {}
local is_new = tonumber(redis.call('GET', batch) or '0') < tonumber(ARGV[4])
for i = 8, #ARGV, 3 do
  local account, floor, added = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if is_new then
    if tonumber(redis.call('HGET', counters, account) or '0') < tonumber(floor) then
      redis.call('HSET', counters, account, floor)
    end
    redis.call('HINCRBY', counters, account, added)
    at = at + 1
    redis.call('ZADD', changed, at, account)
  end
  told[#told + 1] = account
end
if is_new then redis.call('SET', batch, ARGV[4]) end
redis.call('SET', version, string.format('%.0f', at))

local since = redis.call('ZRANGEBYSCORE', changed, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[6])
local seen = at
for i = 1, #since, 2 do
  told[#told + 1] = since[i]
  seen = since[i + 1]
end
if #since < 2 * tonumber(ARGV[6]) then seen = at end
local answer = {known, string.format('%.0f', seen)}
for _, account in ipairs(told) do
  answer[#answer + 1] = account
  answer[#answer + 1] = redis.call('HGET', counters, account) or '0'
end

local surplus = redis.call('ZCARD', changed) - tonumber(ARGV[5])
if surplus > 0 then
  local dropped = redis.call('ZPOPMIN', changed, surplus)
  for i = 1, #dropped, 2 do redis.call('HDEL', counters, dropped[i]) end
end
for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[7]) end
return answer
"""
