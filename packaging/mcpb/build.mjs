#!/usr/bin/env node
// Builds the MCP bundle of one platform, and validates it, with Anthropic's `mcpb`.
//
//     build.mjs --binary PATH --target linux-x64 --out ipybox.mcpb [--mcpb PATH]
//
// A manifest distinguishes systems, not processors, so there is a bundle for each target. `--mcpb` names the tool's
// program, else npx fetches it. Prints a line of JSON: file, sha256, bytes.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { describeProgram } from "../../npm-wrapper/program.mjs";

const MCPB = "@anthropic-ai/mcpb@2.1.2";
const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");

const TARGETS = {
  "linux-x64": { os: "linux", cpu: "x64" },
  "linux-arm64": { os: "linux", cpu: "arm64" },
  "darwin-x64": { os: "darwin", cpu: "x64" },
  "darwin-arm64": { os: "darwin", cpu: "arm64" },
};

class Failure extends Error {}

function main() {
  const { binary, target, out, mcpb } = options();
  const staging = mkdtempSync(join(tmpdir(), "ipybox-mcpb-"));
  try {
    stage(staging, binary, target);
    runMcpb(mcpb, ["validate", join(staging, "manifest.json")]);
    runMcpb(mcpb, ["pack", staging, out]);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
  const content = readFileSync(out);
  const sha256 = createHash("sha256").update(content).digest("hex");
  process.stdout.write(`${JSON.stringify({ file: out, sha256, bytes: content.length })}\n`);
}

function options() {
  const named = Object.fromEntries(["binary", "target", "out", "mcpb"].map((name) => [name, { type: "string" }]));
  let values;
  try {
    ({ values } = parseArgs({ options: named }));
  } catch (error) {
    throw new Failure(error.message);
  }
  for (const name of ["binary", "target", "out"]) {
    if (!values[name]) throw new Failure(`--${name} is missing`);
  }
  if (!Object.hasOwn(TARGETS, values.target)) {
    throw new Failure(`--target \`${values.target}\` is none of ${Object.keys(TARGETS).join(", ")}`);
  }
  return { ...values, out: resolve(values.out) };
}

// The files of the bundle.
function stage(directory, binary, target) {
  checkProgram(binary, target);
  const manifest = JSON.parse(readFileSync(join(here, "manifest.json"), "utf8"));
  const version = readFileSync(join(root, "Cargo.toml"), "utf8").match(/^version = "(.*)"$/m)[1];
  if (manifest.version !== version) {
    throw new Failure(`the manifest's version is ${manifest.version}, and that of Cargo.toml ${version}`);
  }
  manifest.compatibility.platforms = [TARGETS[target].os];
  writeFileSync(join(directory, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  mkdirSync(join(directory, "server"));
  copyFileSync(join(root, "packaging/icon/icon.png"), join(directory, manifest.icon));
  copyFileSync(join(root, "LICENSE"), join(directory, "LICENSE"));
  copyFileSync(join(here, "start.sh"), join(directory, "server/start.sh"));
  copyFileSync(binary, join(directory, manifest.server.entry_point));
  chmodSync(join(directory, manifest.server.entry_point), 0o755);
  chmodSync(join(directory, "server/start.sh"), 0o755);
}

// A bundle with the program of another platform would install, and then not start.
function checkProgram(path, target) {
  let program;
  try {
    program = readFileSync(path);
  } catch (error) {
    throw new Failure(`--binary \`${path}\` cannot be read: ${error.message}`);
  }
  const { os, cpu } = describeProgram(program);
  if (os !== TARGETS[target].os || cpu !== TARGETS[target].cpu) {
    throw new Failure(`--binary \`${path}\` is no program for ${target}`);
  }
}

function runMcpb(program, args) {
  const [command, ...first] = program ? [process.execPath, program] : ["npx", "-y", MCPB];
  const { status, error, stdout, stderr } = spawnSync(command, [...first, ...args], { encoding: "utf8" });
  if (error) throw new Failure(`\`${command}\` does not run: ${error.message}`);
  if (status !== 0) throw new Failure(`\`mcpb ${args[0]}\` ended with ${status}\n${stdout}${stderr}`);
  process.stderr.write(stderr + stdout);
}

try {
  main();
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  process.stderr.write(`error: ${error.message}\n`);
  process.exitCode = 1;
}
