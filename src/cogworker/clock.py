"""The two clocks.

``wall()`` is for what is stored and shown; ``monotonic()`` is for waiting and measuring. Whatever
two processes compare is decided by neither: there the server's clock decides, inside a script.
"""

import time

wall = time.time
monotonic = time.monotonic
