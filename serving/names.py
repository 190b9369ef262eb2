"""Names of tenants, users and apps: spellings that look the same are the same name.

Service and limits are counted by name: a second spelling of a name would be a second client with a second share.
"""

import re
import unicodedata

MAX_NAME = 128  # characters
# Characters of a spelling that is looked at: the order of a letter's accents takes the square of their number.
MAX_SPELLING = 8 * MAX_NAME
# Characters of a printable category that are invisible: Unicode's Default_Ignorable_Code_Point without its format
# characters, and the blank Braille pattern. U+FFFD stands for any character that could not be read: names would merge.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffd\U000e0100-\U000e01ef]"
)


def normalized(name: str) -> str:
    """Return the normalized spelling of `name`: Unicode's form NFC without surrounding white space.

    Raise ValueError, which shows the name escaped, if the result is empty, too long or still ambiguous: if it holds
    control or format characters (such as bidi marks), white space other than the plain space, or other invisible
    characters. Names whose letters look alike but belong to different scripts stay different.
    """
    if len(name) > MAX_SPELLING:
        raise ValueError(f"must be at most {MAX_NAME} characters, got {len(name)}")
    spelled = unicodedata.normalize("NFC", name).strip()
    if len(spelled) > MAX_NAME:
        raise ValueError(f"must be at most {MAX_NAME} characters, got {len(spelled)}")
    if not spelled:
        raise ValueError(f"must hold a visible character, got {name[:MAX_NAME]!a}")
    if not spelled.isprintable() or _UNSEEN.search(spelled):
        raise ValueError(f"must hold printable characters that can be seen, got {spelled!a}")
    return spelled


def tenant_of(client: str) -> str:
    """Return the tenant of a client, which is named `tenant` or `tenant/user`."""
    return client.partition("/")[0]
