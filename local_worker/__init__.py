"""A worker: holds the model, queues requests fairly, batches them continuously, streams their tokens."""
