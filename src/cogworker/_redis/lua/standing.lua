-- What a worker has been told: its last order, and whether the intake of all workers is paused.
-- KEYS   1 the worker's orders, 2 intake
-- Reply  {id of the last order or '', the order or '', who gave it or '', who paused the intake
--        or '', 1 when the intake is paused or 0}
local order = redis.call('HMGET', KEYS[1], 'id', 'order', 'by')
return {
  order[1] or '', order[2] or '', order[3] or '', redis.call('HGET', KEYS[2], 'by') or '',
  redis.call('HEXISTS', KEYS[2], 'by')
}
