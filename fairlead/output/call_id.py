"""Ids of tool calls."""


def call_id(request_id: str, number: int) -> str:
    """Return the id of an output's call `number`: nine characters, since Mistral's templates accept no other length."""
    return f"{request_id[:7]}{number:02x}"
