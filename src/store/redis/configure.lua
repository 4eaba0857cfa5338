-- Creates a queue, or Line::configure.
--
-- KEYS: the queue's, then the key of its last incarnation, which outlives it. ARGV: clock; 1 to
-- make it a queue for tests; the hash of the declaration or empty for an operator; the settings as
-- JSON; then the numbers the scripts need, in the order of FIELDS.
-- Answer: 0 kept, 1 changed, 2 created.

local KEPT, CHANGED, CREATED = 0, 1, 2
local FIELDS = {
  'mode', 'capacity', 'rate', 'active_ttl', 'active_max', 'sliding', 'claim_ttl', 'silent',
  'late_grace', 'max_waiting', 'opens_at', 'closes_at',
}
local for_tests, hash, json = ARGV[2], ARGV[3], ARGV[4]
local FIRST = 5

local function write(...)
  local fields = { 'settings', json, ... }
  for at, name in ipairs(FIELDS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = ARGV[FIRST - 1 + at]
  end
  redis.call('HSET', META, unpack(fields))
end

local rate = tonumber(ARGV[FIRST + 2])
local full = rate < 0 and 0 or depth(rate)

if not open() then
  if for_tests == '1' and ARGV[1] ~= '' then
    now = tonumber(ARGV[1])
  end
  redis.call('UNLINK', unpack(KEYS, 1, 8)) -- what an earlier queue of this name left behind
  local last = tonumber(redis.call('GET', KEYS[9]) or 0)
  local incarnation = math.max(math.floor(now / 1000), last + 1)
  redis.call('SET', KEYS[9], text(incarnation))
  write('inc', text(incarnation), 'last_now', text(now), 'base', 0, 'head', 1, 'tail', 0, 'live', 0,
    'admitted', 0, 'v_all', 1, 'v_gone', 1, 'v_late', 1, 'v_settings', 1, 'v_revoked', 1,
    'micro', text(full), 'micro_at', text(now), 'forgotten', 0, 'judged', 0, 'known_from', 0)
  if hash ~= '' then
    redis.call('HSET', META, 'text_hash', hash)
  end
  if for_tests == '1' then
    redis.call('HSET', META, 'test_clock', 1)
  end
  return CREATED
end

if hash ~= '' then
  if redis.call('HGET', META, 'text_hash') == hash then
    return KEPT
  end
  redis.call('HSET', META, 'text_hash', hash)
end
if rate ~= m.rate then
  m.micro = m.rate < 0 and full or math.min(refilled(), full)
  m.micro_at = now
end
if m.expires_at then
  for at = 1, 8 do
    redis.call('PERSIST', KEYS[at])
  end
  redis.call('HDEL', META, 'expires_at')
end
m.v_settings = m.v_settings + 1
m.v_all = m.v_all + 1
save()
write()
return CHANGED
