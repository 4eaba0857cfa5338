-- Creates a queue, or Line::configure.
--
-- KEYS, ARGV: as in create.lua, nothing after it.
-- Answer: 0 kept, 1 changed, 2 created.

local KEPT, CHANGED, CREATED = 0, 1, 2

if not open(true) then
  if for_tests == '1' and ARGV[1] ~= '' then
    now = tonumber(ARGV[1])
  end
  local last = tonumber(redis.call('GET', INCARNATION) or 0)
  create(math.max(math.floor(now / 1000), last + 1), last, now)
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
  for at = 1, 9 do
    redis.call('PERSIST', KEYS[at])
  end
  redis.call('HDEL', META, 'expires_at')
end
m.v_settings = m.v_settings + 1
m.v_all = m.v_all + 1
save()
write()
return CHANGED
