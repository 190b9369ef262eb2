"""Messages as nobody should send them: right in form and wrong in content, right but for a few bytes, or mere bytes."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from hypothesis import strategies as st

EDGES = (0, 1, 2, 127, 128, 4096, 2**31 - 1)
WHOLE = st.sampled_from(EDGES)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=64),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_ENUM: WHOLE,
    FieldDescriptor.TYPE_FIXED64: WHOLE | st.just(2**64 - 1),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_INT32: WHOLE | st.just(-1),
    FieldDescriptor.TYPE_INT64: WHOLE | st.sampled_from((-1, 2**63 - 1, -(2**63))),
    FieldDescriptor.TYPE_STRING: st.text(max_size=20) | st.sampled_from(("\0", "é" * 2000, "user", "default")),
    FieldDescriptor.TYPE_UINT32: WHOLE | st.just(2**32 - 1),
    FieldDescriptor.TYPE_UINT64: WHOLE | st.just(2**64 - 1),
}


def _struct(values: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


# JSON objects. Their kind of message contains itself, so that it has a strategy of its own.
STRUCTS = st.dictionaries(
    st.text(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
).map(_struct)


def _field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    entry = field.message_type
    if entry is not None and _is_map(field):
        key, value = entry.fields
        return st.dictionaries(SCALARS[key.type], SCALARS[value.type], max_size=3)
    one = structured(field.message_type) if field.message_type else SCALARS[field.type]
    return st.lists(one, max_size=3) if field.is_repeated else one


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def structured(descriptor: Descriptor) -> st.SearchStrategy[Any]:
    """Any message of this kind, with any of its fields, all of which may hold extremes."""
    if descriptor.full_name == Struct.DESCRIPTOR.full_name:
        return STRUCTS
    fields = {field.name: _field(field) for field in descriptor.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: GetMessageClass(descriptor)(**values))


def _with_one_field(descriptor: Any) -> st.SearchStrategy[Any]:
    """A message with one field, whose own message has one field, and so on."""
    if descriptor.full_name == Struct.DESCRIPTOR.full_name:
        return STRUCTS
    made = GetMessageClass(descriptor)
    choices: list[st.SearchStrategy[Any]] = [st.just(made())]
    for field in descriptor.fields:
        if _is_map(field):
            values = _field(field)
        else:
            value = _with_one_field(field.message_type) if field.message_type else SCALARS[field.type]
            values = value.map(lambda one: [one]) if field.is_repeated else value
        choices.append(st.builds(lambda name, value: made(**{name: value}), st.just(field.name), values))
    return st.one_of(choices)


def near(valid: Message) -> st.SearchStrategy[Any]:
    """`valid`, with one field, at any depth, that holds something else."""

    def merged(change: Message) -> Message:
        message = type(valid)()
        message.CopyFrom(valid)
        message.MergeFrom(change)
        return message

    return _with_one_field(valid.DESCRIPTOR).map(merged)


@st.composite
def _mutated(draw: st.DrawFn, messages: st.SearchStrategy[bytes]) -> bytes:
    """A message of which a part is missing, or replaced by other bytes."""
    data = draw(messages)
    start = draw(st.integers(0, len(data)))
    stop = draw(st.integers(start, min(len(data), start + 8)))
    return data[:start] + draw(st.binary(max_size=8)) + data[stop:]


def bodies(messages: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """What an attacker sends where such messages are expected."""
    serialized = messages.map(lambda message: message.SerializeToString())
    return serialized | _mutated(serialized) | st.binary(max_size=200)
