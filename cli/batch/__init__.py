"""`fairlead batch`: a file of requests in OpenAI's batch format, answered in the background class."""
