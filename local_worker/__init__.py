"""The worker: it holds the model, queues requests fairly, batches them continuously and streams their tokens."""
