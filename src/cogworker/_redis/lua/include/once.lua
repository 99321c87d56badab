-- Steering is done once, however often it is sent: the answer is kept under the call's own key.
local function answered(record)
  return redis.call('GET', record)
end

local function answer(record, words)
  redis.call('SET', record, words, 'EX', 900)
  return words
end
