"""Faults of `oauth.py` on demand: the names, and how often."""

OTHER_ISSUER = "https://attacker.example.com"

TOKEN_ERRORS = {
    "invalid_request": 400,
    "invalid_client": 401,
    "invalid_grant": 400,
    "unauthorized_client": 400,
    "unsupported_grant_type": 400,
    "invalid_scope": 400,
}
"""RFC 6749, section 5.2."""


FAULTS = {
    "code:ERROR": "an error of RFC 6749, 5.2, for each code at the token endpoint; `code:unavailable` is a 503 in HTML",
    "refresh:ERROR": "the same for each refresh",
    "authorize:ERROR": "the user, or the server, refuses: `authorize:access_denied` and so on",
    "mixup [ISSUER]": "the callback has another server's `iss`",
    "iss-missing": "the callback has no `iss`, though the metadata promise it",
    "no-iss": "neither the metadata nor the callback know of `iss`",
    "state-mismatch": "before the right callback, a forged one with another state arrives (its status is in the log)",
    "html-error [authorize|code|refresh]": "`error_description` has markup, escapes of terminals and control characters",
    "repeated-request [code|refresh]": "a 400 `temporarily_unavailable` with the request and its credentials as `error_description`",
    "resource-mismatch [URL]": "the resource's metadata are of another one",
    "metadata-private [URL]": "the resource's metadata name an authorization server at http://169.254.169.254/",
    "issuer-mismatch [ISSUER]": "the server's metadata are of another issuer",
    "javascript-url": "the authorization endpoint is `javascript:alert(1)`",
    "file-url": "the authorization endpoint is `file:///etc/passwd`",
    "user-info": "the authorization endpoint is that of the server behind a user name, `http://bank.example@…`",
    "plain-http": "the authorization endpoint is http://example.com/authorize",
    "no-s256 [absent]": "PKCE by `plain` alone, or not mentioned at all",
    "metadata KEY JSON": "that entry in the server's metadata; `null` takes it away",
    "huge-metadata [prm]": "the metadata of the server, or of the resource, never end",
    "redirect-metadata [URL]": "the server's metadata redirect to another origin, by default to this one's other name",
    "slow-metadata [prm]": "the metadata of the server, or of the resource, never come",
    "no-dcr": "no dynamic registration",
    "401-after N": "the tokens there are at the Nth tool call are refused from then on: new ones work",
    "401-always": "every tool call is answered 401, whatever the token",
    "token-echo": "the tool `echo` gives the Authorization header back, too",
    "token-type TYPE": "that `token_type`",
    "access-token TOKEN": "that access token",
    "token-without-expiry": "no `expires_in`",
    "concurrent [SECONDS]": "each refresh takes that long (0.5), so that two of them overlap",
}

MARKUP = (
    "<script>alert(1)</script><b>denied</b> & \"quoted\" 'text'"
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://evil.example.com\x07link\x1b]8;;\x07"
    "\r\nSet-Cookie: a=b\n\x00\x08\u202etxt\u2066 \x9b31m" + "x" * 5000
)
"""A text that must neither reach a terminal nor a page as it is."""


class Faults(dict):
    """The faults and their arguments, by name."""

    def __init__(self, given, times):
        super().__init__((name, rest) for name, *rest in given)
        self.left = times

    def argument(self, name, default):
        return self[name][0] if self.get(name) else default

    def error(self, place):
        """The error to be answered at `authorize`, `code` or `refresh` this time."""
        error = None
        for name in self:
            if name.startswith(f"{place}:"):
                error = name.partition(":")[2]
        if "html-error" in self and self.argument("html-error", "authorize") == place:
            error = "access_denied" if place == "authorize" else "invalid_grant"
        if (
            self.argument("repeated-request", "code") == place
            and "repeated-request" in self
        ):
            error = "temporarily_unavailable"
        if error is None or self.left == 0:
            return None
        self.left -= 1
        return error
