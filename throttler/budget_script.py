"""The rules of `throttler.core.budget_ledger` as Lua, run atomically inside Redis.

Amounts are whole numbers below 2^53, so that Lua's numbers are exact.
"""

BUDGET = "{fairlead}:budget:"  # hash: process -> entry, as `BudgetEntry.text`
EPOCH = "{fairlead}:budgets-epoch"  # another value means that Redis may have lost data
RECALLS = "{fairlead}:budget-recalls"  # channel: the key of an account

# An epoch ends when Redis restarts, too, or another server takes its place: then the last writes may be lost.
# is_current() returns whether this server wrote the epoch.
SERVER = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local function is_current(epoch) return epoch and string.find(epoch, ':' .. run .. ':', 1, true) end
"""

# Returns the epoch, and the milliseconds until it has settled. KEYS: epoch. ARGV: a new epoch, settling milliseconds.
BEAT = (
    SERVER
    + """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local epoch = redis.call('GET', KEYS[1])
if not is_current(epoch) then
  epoch = ARGV[1] .. ':' .. run .. ':' .. string.format('%.0f', now)
  redis.call('SET', KEYS[1], epoch)
end
local settles = tonumber(string.match(epoch, ':(%d+)$')) + tonumber(ARGV[2]) - now
return {epoch, math.max(0, math.ceil(settles))}
"""
)

# KEYS: account, epoch. ARGV: process, limit, first slot, need, milliseconds to keep the account, epoch, settling
# milliseconds, parts, channel, account's name, version, at, held, slots.
ASK = (
    SERVER
    + """
local epoch = redis.call('GET', KEYS[2])
if epoch ~= ARGV[6] or not is_current(epoch) then return {-1} end
local clock = redis.call('TIME')
local settles = tonumber(string.match(epoch, ':(%d+)$')) + tonumber(ARGV[7])
settles = math.max(0, settles - (clock[1] * 1000 + math.floor(clock[2] / 1000)))
local me, limit, first = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local need, mine = tonumber(ARGV[4]), tonumber(ARGV[13])
local function sum(slots)
  local total = 0
  for slot, amount in string.gmatch(slots, '(%d+):(%d+)') do
    if tonumber(slot) >= first then total = total + tonumber(amount) end
  end
  return total
end
local taken, holding, users, others = 0, 0, 1, {}
local entries = redis.call('HGETALL', KEYS[1])
for i = 1, #entries, 2 do
  if entries[i] ~= me then
    local at, held, slots = string.match(entries[i + 1], '^%d+;(%d+);(%d+);(.*)$')
    if tonumber(at) < first then
      redis.call('HDEL', KEYS[1], entries[i])
    else
      users = users + 1
      holding = holding + tonumber(held)
      taken = taken + sum(slots) + tonumber(held)
      others[#others + 1] = entries[i]
      others[#others + 1] = entries[i + 1]
    end
  end
end
local room = limit - taken - sum(ARGV[14])
local granted, recalled = math.max(0, math.min(mine, room)), 0
if need > 0 and need <= room and settles <= 0 then
  granted = math.max(granted, need, math.floor(room / (tonumber(ARGV[8]) * users)))
end
if need > granted and holding > 0 and settles <= 0 then
  recalled = 1
  redis.call('PUBLISH', ARGV[9], me .. ' ' .. ARGV[10])
end
local entry = ARGV[11] .. ';' .. ARGV[12] .. ';' .. string.format('%.0f', granted) .. ';' .. ARGV[14]
redis.call('HSET', KEYS[1], me, entry)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {string.format('%.0f', granted), recalled, settles, others}
"""
)

# KEYS: account. ARGV: milliseconds to keep the account, then processes and their entries.
RESTORE = """
for i = 2, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  local version = known and tonumber(string.match(known, '^(%d+);')) or -1
  if version < tonumber(string.match(ARGV[i + 1], '^(%d+);')) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
