-- Line::heartbeat: merges one gateway's signs of life of one epoch.
--
-- KEYS: the queue's, then the epoch's bits, the epoch's gateways, and one for scratch. ARGV: clock,
-- epoch, gateway, number of the first bit, bytes.
-- Answer: false for an unknown queue, FENCE on a new server, else 1.

local BITS, GATEWAYS, SCRATCH = KEYS[10], KEYS[11], KEYS[12]

local opened = open()
if opened ~= true then
  return opened
end
local epoch, gateway, bytes = tonumber(ARGV[2]), ARGV[3], ARGV[5]
local current = math.floor(now / EPOCH_MS)
local oldest = math.max(0, current - m.silent - 1, m.known_from)
-- The last three digits say whether a number of any length is a multiple of 8.
if epoch < oldest or epoch > current or tonumber(string.sub(ARGV[4], -3)) % 8 ~= 0 then
  return 1
end

redis.call('HSETNX', GATEWAYS, 'first', text(m.base))
redis.call('HSET', GATEWAYS, gateway, 1)
local first, number = tonumber(redis.call('HGET', GATEWAYS, 'first')), tonumber(ARGV[4])
if number < first then -- numbers that the bitmap does not hold any more
  bytes = string.sub(bytes, (first - number) / 8 + 1)
  number = first
end
bytes = string.sub(bytes, 1, math.max(0, math.floor((m.tail - number) / 8) + 1))
if #bytes > 0 then
  redis.call('DEL', SCRATCH)
  redis.call('SETRANGE', SCRATCH, text((number - first) / 8), bytes)
  redis.call('BITOP', 'OR', BITS, BITS, SCRATCH)
  redis.call('DEL', SCRATCH)
end
local kept = (m.silent + 2) * EPOCH_MS
redis.call('PEXPIRE', BITS, text(kept))
redis.call('PEXPIRE', GATEWAYS, text(kept))
return 1
