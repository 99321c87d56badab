-- Wakes the worker that listens at a bell; one token does for any number of news.
local function ring(bell)
  redis.call('DEL', bell)
  redis.call('LPUSH', bell, '1')
  redis.call('EXPIRE', bell, 60)
end
