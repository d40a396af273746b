// An MCP server behind a complete authorization server, `oidc-provider`, on two origins on loopback.
//
//     node oidc.mjs [--packages DIR] [--port PORT] [--issuer-port PORT] [--consent auto|form] [--tokens jwt|opaque]
//         [--token-lifetime SECONDS] [--offline-access] [--any-scope] [--client-id ID --client-secret SECRET]
//         [--resource URL]
//
// Once it listens, it prints `{"url": …, "issuer": …}` as the only line on standard output. Where a user is to consent
// (`form`), two pages ask, and a click on the button `allow` goes on; `deny` is beside it. `GET /log` at the server's
// origin answers what was requested; `DELETE /log` forgets it.
//
// It is as strict as it comes: a client that registers with `scope` gets no other one later, unless `--any-scope`
// makes it forget that, a token that was asked for without `resource` is refused, and a refresh token that is used
// twice ends all that came of the consent. With `--offline-access` a refresh token takes the scope `offline_access` and
// `prompt=consent`.
//
// In DIR (default: where node looks) are the npm packages oidc-provider 9.13.3, @modelcontextprotocol/sdk 1.32.2 and
// jose 6.2.17.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    packages: { type: "string" },
    port: { type: "string", default: "0" },
    "issuer-port": { type: "string", default: "0" },
    consent: { type: "string", default: "auto" },
    tokens: { type: "string", default: "jwt" },
    "token-lifetime": { type: "string", default: "3600" },
    "offline-access": { type: "boolean", default: false },
    "any-scope": { type: "boolean", default: false },
    "client-id": { type: "string" },
    "client-secret": { type: "string" },
    resource: { type: "string" },
  },
});

const place = options.packages ? resolve(options.packages, "x.js") : fileURLToPath(import.meta.url);
const require = createRequire(place);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Provider, errors } = await load("oidc-provider");
const jose = await load("jose");
const { McpServer } = await load("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");

const SUBJECT = "alice";
const SCOPES = "mcp admin";
const METADATA = "/.well-known/oauth-protected-resource/mcp";
const requests = [];

function listen(port) {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(Number(port), "127.0.0.1", () => {
      resolve({ server, origin: `http://127.0.0.1:${server.address().port}` });
    });
  });
}

function answer(response, status, content, headers = {}) {
  const isPage = typeof content === "string";
  response.writeHead(status, {
    "content-type": isPage ? "text/html; charset=utf-8" : "application/json",
    ...headers,
  });
  response.end(isPage ? content : JSON.stringify(content));
}

// Notes a request, without taking its body from whoever answers it.
function note(at, request, response) {
  const url = new URL(request.url, at);
  const noted = {
    time: Date.now() / 1000,
    method: request.method,
    origin: at,
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    headers: { ...request.headers },
  };
  requests.push(noted);
  const chunks = [];
  // In this way and not by a listener for `data`, which would set the stream going before it is read.
  const push = request.push.bind(request);
  request.push = (chunk, encoding) => {
    if (chunk) chunks.push(Buffer.from(chunk, encoding));
    return push(chunk, encoding);
  };
  response.on("finish", () => {
    noted.status = response.statusCode;
    const kind = request.headers["content-type"] ?? "";
    const body = Buffer.concat(chunks).toString();
    if (kind.startsWith("application/x-www-form-urlencoded")) {
      noted.form = Object.fromEntries(new URLSearchParams(body));
    } else if (kind.startsWith("application/json")) {
      try {
        noted.json = JSON.parse(body);
      } catch {
        noted.text = body;
      }
    }
  });
  return url;
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

const resource = await listen(options.port);
const issuing = await listen(options["issuer-port"]);
const issuer = issuing.origin;
// That of another program, if it is named.
const url = options.resource ?? `${resource.origin}/mcp`;

const { privateKey } = await jose.generateKeyPair("ES256", { extractable: true });
const { privateKey: rsa } = await jose.generateKeyPair("RS256", { extractable: true });
const keys = [
  { ...(await jose.exportJWK(privateKey)), kid: "es", alg: "ES256", use: "sig" },
  { ...(await jose.exportJWK(rsa)), kid: "rs", alg: "RS256", use: "sig" },
];

const configuration = {
  clients: [],
  jwks: { keys },
  cookies: { keys: ["the key of a fixture's cookies"] },
  scopes: ["openid", "offline_access", ...SCOPES.split(" ")],
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo(_context, indicator) {
        if (indicator !== url) throw new errors.InvalidTarget();
        return {
          scope: SCOPES,
          audience: url,
          accessTokenTTL: Number(options["token-lifetime"]),
          accessTokenFormat: options.tokens,
          ...(options.tokens === "jwt" && { jwt: { sign: { alg: "ES256" } } }),
        };
      },
    },
  },
  interactions: { url: (_context, interaction) => `/interaction/${interaction.uid}` },
  renderError(context, out) {
    context.type = "json";
    context.body = out;
  },
};
if (!options["offline-access"]) {
  // Otherwise the default: with the scope `offline_access` alone, which in turn takes `prompt=consent`.
  configuration.issueRefreshToken = (_context, client) => client.grantTypeAllowed("refresh_token");
}
if (options["client-id"]) {
  configuration.clients.push({
    client_id: options["client-id"],
    client_secret: options["client-secret"],
    application_type: "native",
    // RFC 8252: on any port.
    redirect_uris: ["http://127.0.0.1/callback", "http://localhost/callback", "http://127.0.0.1/approvals/callback"],
    grant_types: ["authorization_code", "refresh_token", "client_credentials"],
  });
}
const provider = new Provider(issuer, configuration);
const byProvider = provider.callback();
provider.on("server_error", (_context, error) => console.error(error));

// The grant that a user agrees to, in the end.
async function agreed(details) {
  const { prompt, params, session, grantId } = details;
  if (prompt.name === "login") return { login: { accountId: SUBJECT } };
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(" "));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(" "));
  }
  return { consent: { grantId: await grant.save() } };
}

const escaped = (text) => String(text ?? "").replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

function page({ uid, prompt, params }) {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${escaped(prompt.name)}</title></head><body>
<h1>${prompt.name === "login" ? `Sign in as ${SUBJECT}` : "Allow access"}</h1>
<p>${escaped(params.client_id)} asks for <b id="scope">${escaped(params.scope)}</b>
at <span id="resource">${escaped(params.resource)}</span></p>
<form method="post" action="/interaction/${uid}/allow"><button id="allow" type="submit">Allow</button></form>
<form method="post" action="/interaction/${uid}/deny"><button id="deny" type="submit">Deny</button></form>
</body></html>`;
}

async function interact(request, response, [, , , action]) {
  const details = await provider.interactionDetails(request, response);
  if (request.method === "GET" && options.consent === "form") {
    answer(response, 200, page(details));
    return;
  }
  const denied = { error: "access_denied", error_description: "the user said no" };
  const result = action === "deny" ? denied : await agreed(details);
  const merged = { mergeWithLastSubmission: action !== "deny" };
  await provider.interactionFinished(request, response, result, merged);
}

issuing.server.on("request", async (request, response) => {
  const { pathname } = note(issuer, request, response);
  try {
    if (options["any-scope"] && request.method === "POST" && pathname === "/reg") {
      const { scope, ...metadata } = JSON.parse(await bodyOf(request));
      request.body = metadata;
    }
    if (pathname.startsWith("/interaction/")) await interact(request, response, pathname.split("/"));
    else await byProvider(request, response);
  } catch (error) {
    answer(response, error.statusCode ?? 500, { error: error.error ?? "server_error", error_description: error.message });
  }
});

const published = jose.createLocalJWKSet({ keys: keys.map(({ d, p, q, dp, dq, qi, ...key }) => key) });

// The client that a token was given to: by its signature, or, of an opaque one, by what the provider knows.
async function verified(token) {
  if (options.tokens === "jwt") {
    const { payload } = await jose.jwtVerify(token, published, { issuer, audience: url, typ: "at+jwt" });
    return { client_id: payload.client_id, subject: payload.sub, scopes: (payload.scope ?? "").split(" ") };
  }
  const known = (await provider.AccessToken.find(token)) ?? (await provider.ClientCredentials.find(token));
  if (!known || ![known.aud].flat().includes(url)) throw new Error("unknown, or for another resource");
  return { client_id: known.clientId, subject: known.accountId ?? known.clientId, scopes: (known.scope ?? "").split(" ") };
}

function tools(identity) {
  const { z } = createRequire(require.resolve("@modelcontextprotocol/sdk/server/mcp.js"))("zod");
  const server = new McpServer({ name: "oidc", version: "1" });
  const text = (said) => ({ content: [{ type: "text", text: said }] });
  server.registerTool(
    "whoami",
    {
      description: "The client that the token was given to",
      outputSchema: { client_id: z.string(), subject: z.string(), scopes: z.array(z.string()) },
    },
    () => ({ ...text(JSON.stringify(identity)), structuredContent: identity }),
  );
  const echoed = { description: "Gives the text back", inputSchema: { text: z.string() } };
  server.registerTool("echo", echoed, ({ text: said }) => text(said));
  server.registerTool("admin", { description: "Needs the scope admin" }, () => text(`${identity.subject} may`));
  return server;
}

function refused(response, status, error, rest) {
  const value = `Bearer error="${error}", ${rest}, resource_metadata="${resource.origin}${METADATA}"`;
  answer(response, status, { error }, { "www-authenticate": value });
}

resource.server.on("request", async (request, response) => {
  if (request.url === "/log") {
    if (request.method === "DELETE") requests.length = 0;
    answer(response, 200, { requests });
    return;
  }
  const { pathname } = note(resource.origin, request, response);
  if (pathname === METADATA) {
    answer(response, 200, { resource: url, authorization_servers: [issuer], scopes_supported: ["mcp"] });
    return;
  }
  if (pathname !== "/mcp") {
    answer(response, 404, { error: "not_found" });
    return;
  }
  const body = await bodyOf(request);
  let identity;
  try {
    identity = await verified((request.headers.authorization ?? "").replace(/^Bearer /i, ""));
  } catch {
    refused(response, 401, "invalid_token", 'scope="mcp"');
    return;
  }
  if (request.method !== "POST") {
    answer(response, 405, { error: "no stream" }, { allow: "POST" });
    return;
  }
  let message;
  try {
    message = JSON.parse(body);
  } catch {
    answer(response, 400, { error: "no JSON" });
    return;
  }
  const wanted = message.method === "tools/call" && message.params?.name === "admin" ? "admin" : "mcp";
  if (!identity.scopes.includes(wanted)) {
    refused(response, 403, "insufficient_scope", `scope="${[...new Set(["mcp", wanted])].join(" ")}"`);
    return;
  }
  const server = tools(identity);
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on("close", () => server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, message);
});

console.log(JSON.stringify({ url, issuer }));
