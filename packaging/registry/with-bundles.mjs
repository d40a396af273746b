#!/usr/bin/env node
// Prints server.json with the MCP bundles of a release, whose checksums are known only when they are built.
//
//     with-bundles.mjs BUNDLE.mcpb … > server.json
//
// The files' names are those of the release's assets; the registry takes an address only if it has "mcp" in it.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

function bundle(path, server) {
  const name = basename(path);
  if (!name.endsWith(".mcpb")) throw new Error(`\`${path}\` is no bundle: its name does not end with .mcpb`);
  return {
    registryType: "mcpb",
    identifier: `${server.repository.url}/releases/download/v${server.version}/${name}`,
    fileSha256: createHash("sha256").update(readFileSync(path)).digest("hex"),
    transport: { type: "stdio" },
  };
}

const bundles = process.argv.slice(2);
try {
  if (bundles.length === 0) throw new Error("no bundle is named");
  const server = JSON.parse(readFileSync(join(root, "server.json"), "utf8"));
  server.packages.push(...bundles.map((path) => bundle(path, server)));
  process.stdout.write(`${JSON.stringify(server, null, 2)}\n`);
} catch (error) {
  process.stderr.write(`error: ${error.message}\n`);
  process.exitCode = 1;
}
