"""`python docs/api_reference.py`: writes docs/api.md from protos/, comments included."""

import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
HEAD = """# API

Generated from `protos/` by `make protos`; do not edit. `Inference` is the public service; `Admin`, `Traces` and
`Throttling` are for operators. What services say to each other is in `protos/fairlead/v1`, with comments. Every server
answers health checks and reflection.
"""
INTERNAL = {"Scheduler", "Worker", "Tokenizer"}  # services that only other services of a cluster call
# Numbers of fields in descriptor.proto: what source paths are made of.
MESSAGE, ENUM, SERVICE, MEMBER = 4, 5, 6, 2


class Comments:
    """The comments of one file, by the path of what they belong to."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._by_path = {
            tuple(location.path): " ".join((location.leading_comments + location.trailing_comments).split())
            for location in file.source_code_info.location
        }

    def at(self, *path: int) -> str:
        """In one line; empty for none."""
        return self._by_path.get(path, "")


def reference(files: Sequence[FileDescriptorProto]) -> str:
    """The whole page."""
    shown = _reachable(files)
    return "\n".join([HEAD, *(line for file in files for line in _file(file, shown))]).rstrip("\n") + "\n"


def _reachable(files: Sequence[FileDescriptorProto]) -> set[str]:
    """Return the names of the services that are not INTERNAL, and of the messages and enums that they lead to."""
    messages = {message.name: message for file in files for message in file.message_type}
    services = [service for file in files for service in file.service if service.name not in INTERNAL]
    methods = [method for service in services for method in service.method]
    found = {service.name for service in services}
    ahead = [_name(name) for method in methods for name in (method.input_type, method.output_type)]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            fields = messages[name].field if name in messages else ()
            ahead += [_name(field.type_name) for field in fields if field.type_name]
    return found


def _file(file: FileDescriptorProto, shown: Collection[str]) -> Iterator[str]:
    comments = Comments(file)
    lines = [
        *(line for n, each in enumerate(file.service) if each.name in shown for line in _service(each, comments, n)),
        *(
            line
            for n, each in enumerate(file.message_type)
            if each.name in shown
            for line in _message(each, comments, n)
        ),
        *(line for n, each in enumerate(file.enum_type) if each.name in shown for line in _enum(each, comments, n)),
    ]
    if lines:
        yield f"## {file.name.rpartition('/')[2]}\n"
        yield from lines


def _service(service: ServiceDescriptorProto, comments: Comments, number: int) -> Iterator[str]:
    yield from _title(f"service {service.name}", comments.at(SERVICE, number))
    yield "| method | request | response | |\n|---|---|---|---|"
    for index, method in enumerate(service.method):
        request = ("stream " if method.client_streaming else "") + _name(method.input_type)
        response = ("stream " if method.server_streaming else "") + _name(method.output_type)
        yield f"| `{method.name}` | {request} | {response} | {comments.at(SERVICE, number, MEMBER, index)} |"
    yield ""


def _message(message: DescriptorProto, comments: Comments, number: int) -> Iterator[str]:
    yield from _title(message.name, comments.at(MESSAGE, number))
    if not message.field:
        yield "No fields.\n"
        return
    yield "| | field | type | |\n|---|---|---|---|"
    for index, field in enumerate(message.field):
        comment = comments.at(MESSAGE, number, MEMBER, index)
        yield f"| {field.number} | `{field.name}` | {_type(field, message)} | {comment} |"
    yield ""


def _enum(enum: EnumDescriptorProto, comments: Comments, number: int) -> Iterator[str]:
    yield from _title(f"enum {enum.name}", comments.at(ENUM, number))
    yield "| | value | |\n|---|---|---|"
    for index, value in enumerate(enum.value):
        yield f"| {value.number} | `{value.name}` | {comments.at(ENUM, number, MEMBER, index)} |"
    yield ""


def _title(name: str, comment: str) -> Iterator[str]:
    yield f"### {name}\n"
    if comment:
        yield f"{comment}\n"


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    name = _name(field.type_name) if field.type_name else FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    if field.proto3_optional:
        return f"optional {name}"
    if field.HasField("oneof_index"):
        return f"{name}, one of {message.oneof_decl[field.oneof_index].name}"
    return name


def _name(full: str) -> str:
    return full.rpartition(".")[2]


def parse(protos: Path) -> list[FileDescriptorProto]:
    """Every file of our package, with its comments, by name."""
    names = sorted(str(path) for path in (protos / "fairlead").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        paths = [f"-I{path}" for path in (protos, Path(grpc_tools.__file__).parent / "_proto")]
        status = protoc.main(["", *paths, "--include_source_info", f"--descriptor_set_out={out}", *names])
        if status:
            raise SystemExit(status)
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(reference(parse(ROOT / "protos")))
    sys.exit(0)
