"""The header by which a client that knows nothing else of Fairlead says which calls belong together.

`x-fairlead-interaction: ID` opens an interaction under an id that the client chooses. Each answer carries the header
`x-fairlead-interaction: ID;token=TOKEN`, and the next call sends it back as it is. With `;end` added, the call is the
interaction's last.
"""

import base64
import binascii

from fairlead.errors import InvalidRequest
from fairlead.v1 import inference_pb2

HEADER = "x-fairlead-interaction"


def parse(header: str) -> inference_pb2.Interaction:
    """Return the interaction that `header` names; raises InvalidRequest."""
    name, *parameters = (part.strip() for part in header.split(";"))
    if not (name.isascii() and name.isprintable()):
        raise InvalidRequest(f"the id must be printable ASCII, got {name[:32]!a}", HEADER)
    interaction = inference_pb2.Interaction(id=name)
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key == "end" and not value:
            interaction.end = True
        elif key == "token":
            interaction.token = _decoded(value)
            interaction.stage = 1  # not the first: the gateway counts for itself
        else:
            raise InvalidRequest(f"expected ID[;token=TOKEN][;end], got the parameter {key[:32]!a}", HEADER)
    return interaction


def header_of(interaction: str, token: bytes) -> tuple[bytes, bytes]:
    """Return the answer's header, which the interaction's next call sends back."""
    return HEADER.encode(), b"%s;token=%s" % (interaction.encode(), base64.urlsafe_b64encode(token).rstrip(b"="))


def _decoded(token: str) -> bytes:
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("the token is not base64", HEADER) from error
