"""What may happen to a job: places, effects, moves, and the replies to them. No I/O."""
