"""An identity provider made with Authlib and Flask, on loopback: JSON Web Tokens (RFC 9068), or opaque ones (RFC 7662).

    authlib_provider.py [--tokens jwt|opaque] [--audience URL]

Once it listens, it prints `{"issuer": …}` as the only line on standard output. The client `ipybox` has the secret `s3cret`,
and gets tokens for itself, or by the password `pw` for the user `alice`. Without `--audience`, tokens have Authlib's: the
client. `POST /forget` ends all tokens.
"""

import argparse
import json
import logging
import os
import time

# Loopback needs no encryption.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, jsonify
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import make_server

SECRET, PASSWORD = "s3cret", "pw"
GROUPS = ["lab", "finance"]


class ProviderUser:
    """The only user."""

    def get_user_id(self):
        return "alice"


class ProviderClient(ClientMixin):
    """The only client."""

    def get_client_id(self):
        return "ipybox"

    def get_default_redirect_uri(self):
        return None

    def get_allowed_scope(self, scope):
        return scope

    def check_redirect_uri(self, redirect_uri):
        return False

    def check_client_secret(self, client_secret):
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method, endpoint):
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type):
        return False

    def check_grant_type(self, grant_type):
        return grant_type in ("client_credentials", "password")


class Token(TokenMixin):
    """A token, and the end of it."""

    def __init__(self, answer, user):
        self.scope, self.user = answer.get("scope", ""), user
        self.expires_at = int(time.time()) + answer["expires_in"]

    def is_revoked(self):
        return False

    def is_expired(self):
        return self.expires_at < time.time()


class Password(grants.ResourceOwnerPasswordCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def authenticate_user(self, username, password):
        return ProviderUser() if (username, password) == ("alice", PASSWORD) else None


class ForItself(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)


def make(options, issuer):
    app = Flask("authlib_provider")
    key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, private=True)
    key.ensure_kid()
    tokens = {}

    class Introspection(IntrospectionEndpoint):
        CLIENT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

        def query_token(self, token_string, token_type_hint):
            return tokens.get(token_string)

        def check_permission(self, token, client, request):
            return True

        def introspect_token(self, token):
            said = {"active": True, "client_id": "ipybox", "scope": token.scope}
            said |= {"token_type": "Bearer", "exp": token.expires_at, "iss": issuer}
            said["sub"] = token.user.get_user_id() if token.user else "ipybox"
            return said | {"aud": options.audience or "ipybox", "groups": GROUPS}

    class WebTokens(JWTBearerTokenGenerator):
        def get_jwks(self):
            return KeySet([key])

        def get_audiences(self, client, user, scope):
            asked = options.audience
            return [asked] if asked else super().get_audiences(client, user, scope)

        def get_extra_claims(self, client, grant_type, user, scope):
            return {"groups": GROUPS}

    def save_token(token, request):
        tokens[token["access_token"]] = Token(token, request.user)

    server = AuthorizationServer(
        app, query_client=lambda _: ProviderClient(), save_token=save_token
    )
    opaque = BearerTokenGenerator(lambda *_args, **_kwargs: os.urandom(24).hex())
    server.register_token_generator(
        "default", WebTokens(issuer) if options.tokens == "jwt" else opaque
    )
    server.register_grant(ForItself)
    server.register_grant(Password)
    server.register_endpoint(Introspection)

    @app.get("/.well-known/oauth-authorization-server")
    def metadata():
        places = {"jwks_uri": "jwks", "token_endpoint": "token"}
        places["introspection_endpoint"] = "introspect"
        endpoints = {name: f"{issuer}/{path}" for name, path in places.items()}
        return jsonify({"issuer": issuer, "response_types_supported": [], **endpoints})

    app.get("/jwks", endpoint="jwks")(
        lambda: jsonify({"keys": [key.as_dict(private=False)]})
    )
    app.post("/token", endpoint="token")(lambda: server.create_token_response())
    app.post("/introspect", endpoint="introspect")(
        lambda: server.create_endpoint_response("introspection")
    )
    app.post("/forget", endpoint="forget")(lambda: tokens.clear() or jsonify({}))
    return app


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", choices=["jwt", "opaque"], default="jwt")
    parser.add_argument("--audience")
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    listener = make_server("127.0.0.1", 0, app=None, threaded=True)
    issuer = f"http://127.0.0.1:{listener.server_port}"
    listener.app = make(options, issuer)
    print(json.dumps({"issuer": issuer}), flush=True)
    listener.serve_forever()


if __name__ == "__main__":
    main()
