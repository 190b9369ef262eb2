"""Public HTTP routers under the same job, in an environment of their own: nothing of them is imported by ours."""
