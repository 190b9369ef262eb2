"""The simplest call: send a prompt and print its completion as it arrives, with the blocking client."""

import sys

import fairlead

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7000"

with fairlead.SyncClient(ADDRESS) as client:
    for chunk in client.stream("The tide is", max_tokens=24):
        print(chunk.text, end="", flush=True)
    print()
