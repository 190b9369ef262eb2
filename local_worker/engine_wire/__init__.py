"""The messages of served engines, made of protos/local_worker/engine_wire by `make protos`."""
