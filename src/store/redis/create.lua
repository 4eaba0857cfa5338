-- How a queue is written: shared by the scripts that make one.
--
-- KEYS: the queue's, then the key of its last incarnation, which outlives it. ARGV: clock; 1 to
-- make it a queue for tests; the hash of the declaration or empty for an operator; the settings as
-- JSON; then the numbers the scripts need, in the order of FIELDS; then what the script itself takes.

local INCARNATION = KEYS[10]
local FIELDS = {
  'mode', 'capacity', 'rate', 'active_ttl', 'active_max', 'sliding', 'claim_ttl', 'silent',
  'late_grace', 'max_waiting', 'opens_at', 'closes_at',
}
local for_tests, hash, json = ARGV[2], ARGV[3], ARGV[4]
local FIRST = 5
local rate = tonumber(ARGV[FIRST + 2])
local full = rate < 0 and 0 or depth(rate)

local function write(...)
  local fields = { 'settings', json, ... }
  for at, name in ipairs(FIELDS) do
    fields[#fields + 1] = name
    fields[#fields + 1] = ARGV[FIRST - 1 + at]
  end
  redis.call('HSET', META, unpack(fields))
end

-- Writes a queue with nobody in it, in the place of whatever an earlier one left behind.
local function create(incarnation, previous, created)
  redis.call('UNLINK', unpack(KEYS, 1, 9))
  redis.call('SET', INCARNATION, text(incarnation))
  write('inc', text(incarnation), 'run', server_run(), 'last_now', text(now), 'base', 0, 'head', 1,
    'tail', 0, 'live', 0, 'admitted', 0, 'v_all', 1, 'v_gone', 1, 'v_late', 1, 'v_settings', 1,
    'v_revoked', 1, 'micro', text(full), 'micro_at', text(now), 'forgotten', 0, 'judged', 0,
    'known_from', 0, 'fences', 0, 'admit_after', 0, 'issued_floor', 0, 'created', text(created),
    'previous', text(previous))
  if hash ~= '' then
    redis.call('HSET', META, 'text_hash', hash)
  end
  if for_tests == '1' then
    redis.call('HSET', META, 'test_clock', 1)
  end
end
