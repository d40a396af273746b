// A company: an identity provider that exchanges tokens, and MCP servers that take nothing but exchanged ones. On loopback.
//
//     node exchange.mjs [--packages DIR] [--secret SECRET]
//
// Once it listens, it prints `{"issuer": …, "authority": …, "crm": …, "wiki": …, "control": …}` as the only line on standard output.
// `issuer` and `authority` are authorization servers (`oidc-provider`). The issuer gives users their tokens, for the audience
// `team`, exchanges these (RFC 8693) for tokens of `crm`, and gives assertions (ID-JAG) for the authority, which takes them
// (RFC 7523) for tokens of `wiki`. `ipybox` is their client, with SECRET; `agent` is the client of users.
//
// At `control`: `GET /log` answers what the MCP servers and token endpoints were asked; `POST /token` with
// `{"subject": …, "seconds": …}` answers a user's token; `PUT /fault` with `{"kind": …}` has the issuer's exchanges fail in
// this way, and with `{}` no more; `POST /revoke` has the MCP servers take no token that was issued before.
//
// In DIR (default: where node looks) are the npm packages oidc-provider 9.13.3, @modelcontextprotocol/sdk 1.32.2 and
// jose 6.2.17.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: { packages: { type: "string" }, secret: { type: "string", default: "s3cret-of-the-exchange" } },
});

const place = options.packages ? resolve(options.packages, "x.js") : fileURLToPath(import.meta.url);
const require = createRequire(place);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Provider, errors } = await load("oidc-provider");
const jose = await load("jose");
const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");

const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const LOGIN = "urn:fixture:login";
const TYPE = "urn:ietf:params:oauth:token-type:";
const TEAM = "team";

const requests = [];
let fault;
let revoked = 0;
let issued = 0;

function listen() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      resolve({ server, origin: `http://127.0.0.1:${server.address().port}` });
    });
  });
}

function answer(response, status, content, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(typeof content === "string" ? content : JSON.stringify(content));
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const note = (origin, request, body) =>
  requests.push({ origin, path: request.url, headers: request.headers, body });

const [issuing, authorizing, crm, wiki, control] = await Promise.all([1, 2, 3, 4, 5].map(listen));
const issuer = issuing.origin;
const authority = authorizing.origin;
const crmUrl = `${crm.origin}/mcp`;
const wikiUrl = `${wiki.origin}/mcp`;

const { privateKey } = await jose.generateKeyPair("ES256", { extractable: true });
const { privateKey: rsa } = await jose.generateKeyPair("RS256", { extractable: true });
const keys = [
  { ...(await jose.exportJWK(privateKey)), kid: "es", alg: "ES256", use: "sig" },
  { ...(await jose.exportJWK(rsa)), kid: "rs", alg: "RS256", use: "sig" },
];
const published = jose.createLocalJWKSet({ keys: keys.map(({ d, p, q, dp, dq, qi, ...key }) => key) });

// An authorization server whose clients may have these grants each.
function provider(origin, grants) {
  const clients = Object.entries(grants).map(([client_id, grant]) => {
    const client = { client_id, client_secret: options.secret, redirect_uris: [], response_types: [] };
    return { ...client, grant_types: [grant] };
  });
  return new Provider(origin, {
    clients,
    extraTokenClaims: () => ({ number: (issued += 1) }),
    jwks: { keys },
    cookies: { keys: ["the key of a fixture's cookies"] },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    features: { devInteractions: { enabled: false }, clientCredentials: { enabled: true } },
  });
}

// An access token of the provider for one resource.
async function accessToken(of, context, subject, audience, seconds) {
  const { client, params } = context.oidc;
  const token = new of.AccessToken({ accountId: subject, client, scope: params.scope });
  token.resourceServer = new of.ResourceServer(audience, {
    scope: "use",
    audience,
    accessTokenTTL: seconds,
    accessTokenFormat: "jwt",
    jwt: { sign: { alg: "ES256" } },
  });
  token.setAudience(audience);
  return token.save();
}

const verify = async (token, expected) => {
  try {
    return (await jose.jwtVerify(token, published, expected)).payload;
  } catch {
    throw new errors.InvalidGrant("the token is not good");
  }
};

const idp = provider(issuer, { ipybox: EXCHANGE, agent: LOGIN });
idp.registerGrantType(
  LOGIN,
  async (context) => {
    const { subject, seconds } = context.oidc.params;
    const token = await accessToken(idp, context, subject, TEAM, Number(seconds));
    context.body = { access_token: token, token_type: "Bearer", expires_in: Number(seconds) };
  },
  ["subject", "seconds", "scope"],
);
idp.registerGrantType(
  EXCHANGE,
  async (context) => {
    const { subject_token, subject_token_type, requested_token_type, audience, resource, scope } = context.oidc.params;
    if (subject_token_type !== `${TYPE}access_token`) throw new errors.InvalidRequest("the subject is no access token");
    const { sub } = await verify(subject_token, { issuer, audience: TEAM, typ: "at+jwt" });
    if (sub === "mallory") throw new errors.AccessDenied("not for this user");
    if (requested_token_type === `${TYPE}id-jag`) {
      if (audience !== authority || resource !== wikiUrl) throw new errors.InvalidTarget();
      const claims = { client_id: "ipybox", resource, scope };
      const jag = await new jose.SignJWT(claims)
        .setProtectedHeader({ alg: "ES256", kid: "es", typ: "oauth-id-jag+jwt" })
        .setIssuer(issuer).setSubject(sub).setAudience(authority)
        .setIssuedAt().setJti(`jag-${(issued += 1)}`).setExpirationTime("60s")
        .sign(privateKey);
      context.body = { access_token: jag, issued_token_type: `${TYPE}id-jag`, token_type: "N_A", expires_in: 60, scope };
      return;
    }
    if (resource !== crmUrl && audience !== "crm") throw new errors.InvalidTarget();
    const at = fault === "other-audience" ? "https://elsewhere.example" : audience ?? crmUrl;
    const token = await accessToken(idp, context, sub, at, 3600);
    const body = { access_token: token, issued_token_type: `${TYPE}access_token`, token_type: "Bearer", expires_in: 3600 };
    if (fault === "own") body.access_token = subject_token;
    if (fault === "bound") body.token_type = "DPoP";
    if (fault === "untyped") delete body.issued_token_type;
    context.body = body;
  },
  ["subject_token", "subject_token_type", "requested_token_type", "audience", "resource", "scope"],
);

const itsOwn = provider(authority, { ipybox: BEARER });
itsOwn.registerGrantType(
  BEARER,
  async (context) => {
    const expected = { issuer, audience: authority, typ: "oauth-id-jag+jwt" };
    const { sub, client_id, resource } = await verify(context.oidc.params.assertion, expected);
    if (client_id !== context.oidc.client.clientId) throw new errors.InvalidGrant("of another client");
    const token = await accessToken(itsOwn, context, sub, resource, 3600);
    context.body = { access_token: token, token_type: "Bearer", expires_in: 3600 };
  },
  ["assertion", "scope"],
);

// Answers a token request in a way that no provider should; whether it did.
function spoil(request, response, body) {
  const subject = new URLSearchParams(body).get("subject_token");
  if (!subject || !fault) return false;
  switch (fault) {
    case "html":
      answer(response, 200, "<html>hello</html>", { "content-type": "text/html" });
      return true;
    case "huge":
      answer(response, 200, { access_token: "x".repeat(2 * 1024 * 1024) });
      return true;
    case "silent":
      return true;
    case "redirect":
      answer(response, 307, {}, { location: `${control.origin}/stolen` });
      return true;
    case "outage":
      answer(response, 503, { error: "temporarily_unavailable" });
      return true;
    case "invalid_target":
    case "access_denied":
      // As indiscreet as can be.
      answer(response, 400, { error: fault, error_description: `not with ${subject}` });
      return true;
    case "indiscreet":
      answer(response, 400, { error: subject });
      return true;
    default:
      return false;
  }
}

function serveProvider({ server, origin }, of) {
  const byProvider = of.callback();
  of.on("server_error", (_context, error) => console.error(error));
  server.on("request", async (request, response) => {
    if (request.method !== "POST") return byProvider(request, response);
    const body = await bodyOf(request);
    note(origin, request, body);
    if (origin === issuer && spoil(request, response, body)) return undefined;
    request.body = Object.fromEntries(new URLSearchParams(body));
    return byProvider(request, response);
  });
}
serveProvider(issuing, idp);
serveProvider(authorizing, itsOwn);

function serveMcp({ server, origin }, byIssuer, audiences) {
  server.on("request", async (request, response) => {
    const body = await bodyOf(request);
    note(origin, request, body);
    let identity;
    try {
      const token = (request.headers.authorization ?? "").replace(/^Bearer /i, "");
      const { payload } = await jose.jwtVerify(token, published, { issuer: byIssuer, audience: audiences, typ: "at+jwt" });
      if (payload.number <= revoked) throw new Error("revoked");
      identity = { subject: payload.sub, client: payload.client_id };
    } catch {
      answer(response, 401, { error: "invalid_token" }, { "www-authenticate": 'Bearer error="invalid_token"' });
      return;
    }
    if (request.method !== "POST" || request.url !== "/mcp") {
      answer(response, 405, { error: "no stream" }, { allow: "POST" });
      return;
    }
    const { z } = createRequire(require.resolve("@modelcontextprotocol/sdk/server/mcp.js"))("zod");
    const mcp = new McpServer({ name: "company", version: "1" });
    mcp.registerTool(
      "whoami",
      { description: "The user of the token", outputSchema: { subject: z.string(), client: z.string() } },
      () => ({ content: [{ type: "text", text: JSON.stringify(identity) }], structuredContent: identity }),
    );
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on("close", () => mcp.close());
    await mcp.connect(transport);
    await transport.handleRequest(request, response, JSON.parse(body));
  });
}
serveMcp(crm, issuer, [crmUrl, "crm"]);
serveMcp(wiki, authority, [wikiUrl]);

control.server.on("request", async (request, response) => {
  const body = await bodyOf(request);
  const wish = body ? JSON.parse(body) : {};
  switch (`${request.method} ${request.url}`) {
    case "GET /log":
      answer(response, 200, { requests });
      return;
    case "POST /token": {
      const form = new URLSearchParams({ grant_type: LOGIN, subject: wish.subject, seconds: wish.seconds, scope: "use" });
      const authorization = `Basic ${Buffer.from(`agent:${options.secret}`).toString("base64")}`;
      const given = await fetch(`${issuer}/token`, { method: "POST", body: form, headers: { authorization } });
      answer(response, given.status, await given.text());
      return;
    }
    case "PUT /fault":
      fault = wish.kind;
      answer(response, 200, {});
      return;
    case "POST /revoke":
      revoked = issued;
      answer(response, 200, {});
      return;
    default:
      note(control.origin, request, body);
      answer(response, 404, {});
  }
});

console.log(JSON.stringify({ issuer, authority, crm: crmUrl, wiki: wikiUrl, control: control.origin }));
