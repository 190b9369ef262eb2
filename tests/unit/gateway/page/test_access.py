"""Who may see the page."""

import pytest

from gateway.page.access import ACCESS_SECONDS, PageAccess, page_key

SECRET = "sixteen letters!"
NOW = 1_000_000.0


def cookie_of(header: str) -> str:
    return header.partition(";")[0]


def test_the_secret_and_the_key_of_the_page_open_it() -> None:
    access = PageAccess(SECRET, is_secure=False)
    assert access.opens(SECRET)
    assert access.opens(f" {page_key(SECRET)}\n"), "as it was copied"
    for wrong in ("", "sixteen letters", page_key("another secret!!"), "ä"):
        assert not access.opens(wrong), wrong


def test_the_key_does_not_tell_the_secret() -> None:
    assert SECRET not in page_key(SECRET)
    assert len(page_key(SECRET)) == 32


def test_an_access_ends_and_is_worth_nothing_elsewhere() -> None:
    access = PageAccess(SECRET, is_secure=False)
    cookie = cookie_of(access.cookie(NOW))
    assert access.is_valid(f"theme=dark; {cookie}", NOW)
    assert PageAccess(SECRET, is_secure=True).is_valid(cookie, NOW), "a gateway that was restarted knows it"
    assert not access.is_valid(cookie, NOW + ACCESS_SECONDS)
    assert not PageAccess("another secret!!", is_secure=False).is_valid(cookie, NOW)


@pytest.mark.parametrize("cookies", ["", "fairlead-page=", "fairlead-page=9999999999.", "fairlead-page=x.y", "a; b=c"])
def test_invented_cookies_open_nothing(cookies: str) -> None:
    assert not PageAccess(SECRET, is_secure=False).is_valid(cookies, NOW)


def test_nobody_else_reads_the_cookie() -> None:
    attributes = PageAccess(SECRET, is_secure=True).cookie(NOW).split("; ")[1:]
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"} <= set(attributes)
    assert "Secure" not in PageAccess(SECRET, is_secure=False).cookie(NOW)
    assert "Max-Age=0" in PageAccess(SECRET, is_secure=False).ended()
