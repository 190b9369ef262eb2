"""The service tiers of calls.

OpenAI's names are used on the wire. `flex` is the background class: such a call takes only what no interactive call
wants. All other tiers are the interactive class, `default`.
"""

DEFAULT, FLEX = "default", "flex"
SERVICE_TIERS = (DEFAULT, FLEX)
HEADER = "x-fairlead-service-tier"  # over HTTP, of requests and answers
