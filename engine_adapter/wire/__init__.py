"""The messages of served engines, made of protos/engine_adapter/wire by `make protos`."""
