"""Public HTTP routers under the same job, in their own environment: our code imports none of theirs."""
