"""The authorization server of `oauth.py`: clients, codes and tokens, in memory."""

import asyncio
import secrets
import time
import urllib.request
from collections import Counter
from urllib.error import HTTPError

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.shared.auth import (
    InvalidRedirectUriError,
    OAuthClientInformationFull,
    OAuthToken,
)
from oauth_faults import MARKUP, OTHER_ISSUER
from pydantic import AnyUrl

SCOPES = ["mcp", "admin"]
SUBJECT = "alice"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Client(OAuthClientInformationFull):
    """A client, whose loopback redirect may be on any port (RFC 8252, 7.3), unless it is to be exact."""

    exact: bool = False

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        if redirect_uri and not self.exact and redirect_uri.host in LOOPBACK:
            if self.redirect_uris is None:
                return redirect_uri
            for known in self.redirect_uris:
                if (known.host, known.path) == (redirect_uri.host, redirect_uri.path):
                    return redirect_uri
        if self.redirect_uris is None and not redirect_uri:
            raise InvalidRedirectUriError("no redirect_uri")
        return super().validate_redirect_uri(redirect_uri)


class Family:
    """The tokens of one consent: a reused refresh token ends them all."""

    def __init__(self):
        self.tokens = set()


class Provider(OAuthAuthorizationServerProvider):
    """Clients, codes and tokens, in memory."""

    def __init__(self, options, faults, issuer):
        self.options, self.faults, self.issuer = options, faults, issuer
        self.clients, self.codes, self.access, self.refresh = {}, {}, {}, {}
        self.used, self.families, self.counts = set(), {}, Counter()
        self.forged = []
        if options.client_id:
            method = f"client_secret_{options.client_auth}"
            self.clients[options.client_id] = Client(
                client_id=options.client_id,
                client_secret=options.client_secret,
                redirect_uris=options.redirect_uri,
                token_endpoint_auth_method=method if options.client_secret else "none",
                scope=" ".join(SCOPES),
                exact=bool(options.redirect_uri),
            )

    async def get_client(self, client_id):
        if (
            self.options.cimd
            and client_id.startswith("https://")
            and client_id not in self.clients
        ):
            # Its document is not read: it would have to be on the web.
            self.clients[client_id] = Client(
                client_id=client_id,
                redirect_uris=None,
                token_endpoint_auth_method="none",
                scope=" ".join(SCOPES),
            )
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.counts["registrations"] += 1
        # Whatever was asked for: a client may want more later.
        client_info.scope = " ".join(SCOPES)
        self.clients[client_info.client_id] = Client(
            **client_info.model_dump(), exact=self.options.exact_redirect
        )

    async def authorize(self, client, params):
        self.counts["authorizations"] += 1
        answer = {"state": params.state, "iss": self.issuer}
        if {"iss-missing", "no-iss"} & self.faults.keys():
            answer["iss"] = None
        if "mixup" in self.faults:
            answer["iss"] = self.faults.argument("mixup", OTHER_ISSUER)
        error = self.faults.error("authorize")
        if error:
            description = f"the fixture says {error}"
            if "html-error" in self.faults:
                description = MARKUP
            answer |= {"error": error, "error_description": description}
            return construct_redirect_uri(str(params.redirect_uri), **answer)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or ["mcp"],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            subject=SUBJECT,
            **params.model_dump(exclude={"state", "scopes"}),
        )
        self.codes[code.code] = code
        answer["code"] = code.code
        if "state-mismatch" in self.faults:
            forged = answer | {"code": "forged", "state": "forged"}
            url = construct_redirect_uri(str(params.redirect_uri), **forged)
            self.forged.append(await asyncio.to_thread(visit, url))
        return construct_redirect_uri(str(params.redirect_uri), **answer)

    async def load_authorization_code(self, client, authorization_code):
        code = self.codes.get(authorization_code)
        if code is None and authorization_code in self.used:
            self.counts["reused_codes"] += 1
        return code

    async def exchange_authorization_code(self, client, authorization_code):
        self.counts["codes"] += 1
        del self.codes[authorization_code.code]
        self.used.add(authorization_code.code)
        return self.issue(authorization_code, authorization_code.scopes, Family(), True)

    async def load_refresh_token(self, client, refresh_token):
        if refresh_token in self.used:
            self.counts["reused_refresh_tokens"] += 1
            self.end(self.families[refresh_token])
            return None
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if refresh_token.token not in self.refresh:
            raise TokenError("invalid_grant", "it was used meanwhile")
        self.counts["refreshes"] += 1
        family = self.families[refresh_token.token]
        if self.options.rotate:
            del self.refresh[refresh_token.token]
            self.used.add(refresh_token.token)
        return self.issue(refresh_token, scopes, family, self.options.rotate)

    async def load_access_token(self, token):
        known = self.access.get(token)
        # To the fraction of a second, other than the SDK.
        return known and known[0] if not known or known[1] > time.time() else None

    async def revoke_token(self, token):
        self.counts["revocations"] += 1
        self.end(self.families[token.token])

    def issue(self, source, scopes, family, with_refresh):
        """Tokens in exchange for a code or a refresh token."""
        about = {
            "client_id": source.client_id,
            "resource": source.resource,
            "subject": SUBJECT,
        }
        lifetime = self.options.token_lifetime
        token = AccessToken(
            token=f"access-{secrets.token_urlsafe(32)}", scopes=scopes, **about
        )
        self.access[token.token] = (token, time.time() + lifetime)
        refresh = None
        if with_refresh and not self.options.no_refresh:
            refresh = f"refresh-{secrets.token_urlsafe(32)}"
            # A refresh keeps what was consented to, even where it asked for less.
            self.refresh[refresh] = RefreshToken(
                token=refresh, scopes=source.scopes, **about
            )
        for text in filter(None, (token.token, refresh)):
            family.tokens.add(text)
            self.families[text] = family
        expiry = None if "token-without-expiry" in self.faults else int(lifetime)
        return OAuthToken(
            access_token=token.token,
            expires_in=expiry,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )

    def end(self, family):
        for token in family.tokens:
            self.access.pop(token, None)
            self.refresh.pop(token, None)


def visit(url):
    """The status that an HTTP GET is answered with, or what went wrong."""
    try:
        with urllib.request.urlopen(url, timeout=300) as answer:
            return answer.status
    except HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)
