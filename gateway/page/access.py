"""Access to the page: a viewer presents the admin secret or the page's own key once, and has a cookie from then on.

The key of the page is derived from the secret. It opens the page and nothing else, so that `fairlead up` can print it.
A cookie is signed with the key and holds the time of its end: every gateway with the same secret accepts it, also after
a restart, and no gateway keeps a list.
"""

import hashlib
import hmac

COOKIE = "fairlead-page"
ACCESS_SECONDS = 12 * 3600


def page_key(secret: str) -> str:
    """Return the key that opens the page of gateways with this admin secret, as 32 hex digits."""
    return _mac(secret, "operators' page")


class PageAccess:
    """The check of keys and cookies; `now` is Unix time in seconds."""

    def __init__(self, secret: str, is_secure: bool) -> None:
        self._secret = secret
        self._key = page_key(secret)
        self._attributes = f"; Path=/; Max-Age={ACCESS_SECONDS}; HttpOnly; SameSite=Strict"
        if is_secure:
            self._attributes += "; Secure"

    def opens(self, key: str) -> bool:
        """Return whether `key` is the secret or the page's key; the comparison takes constant time."""
        given = key.strip().encode()
        return hmac.compare_digest(given, self._key.encode()) | hmac.compare_digest(given, self._secret.encode())

    def cookie(self, now: float) -> str:
        """Return the value of a Set-Cookie header that lets this browser in."""
        end = str(int(now) + ACCESS_SECONDS)
        return f"{COOKIE}={end}.{_mac(self._key, end)}{self._attributes}"

    def ended(self) -> str:
        """Return the value of a Set-Cookie header that ends the access of this browser."""
        return f"{COOKIE}={self._attributes.replace(str(ACCESS_SECONDS), '0')}"

    def is_valid(self, cookies: str, now: float) -> bool:
        """Return whether a Cookie header holds a signed end of access that has not come."""
        for pair in cookies.split(";"):
            name, _, value = pair.strip().partition("=")
            end, _, signature = value.partition(".")
            if (
                name == COOKIE
                and end.isdecimal()
                and hmac.compare_digest(signature.encode(), _mac(self._key, end).encode())
            ):
                return int(end) > now
        return False


def _mac(key: str, text: str) -> str:
    return hmac.digest(key.encode(), text.encode(), hashlib.sha256).hex()[:32]
