"""Names of tenants, users and apps: whatever looks the same is the same name.

A name is a key of accounts and limits: a second spelling of it would be a second client, with a share of its own.
"""

import re
import unicodedata

MAX_NAME = 128  # characters
# Printable by their category, and yet nothing is to be seen of them: Unicode's Default_Ignorable_Code_Point without its
# format characters, and the blank Braille pattern.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def normalized(name: str) -> str:
    """The one spelling of `name`: Unicode's form NFC, without white space around it.

    Raises ValueError, which shows the name escaped, for what is still ambiguous: control and format characters, bidi
    marks among them, white space other than the plain space, other characters that cannot be seen, nothing at all.
    Letters of different scripts that look alike stay different names.
    """
    spelled = unicodedata.normalize("NFC", name).strip()
    if len(spelled) > MAX_NAME:
        raise ValueError(f"must be at most {MAX_NAME} characters, got {len(spelled)}")
    if not spelled:
        raise ValueError(f"must hold a visible character, got {name[:MAX_NAME]!a}")
    if not spelled.isprintable() or _UNSEEN.search(spelled):
        raise ValueError(f"must hold printable characters that can be seen, got {spelled!a}")
    return spelled
