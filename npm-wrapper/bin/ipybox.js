#!/usr/bin/env node
// Starts the ipybox binary for this machine, which npm installed as a package of its own, and stands in for it: what
// it is asked to end by goes to the binary, and how the binary ends is how this process ends. Its stdin, stdout and
// stderr are the binary's; nothing is read or written here but errors.
'use strict';

const { spawn } = require('child_process');
const { existsSync, realpathSync } = require('fs');
const { dirname, join, resolve, sep } = require('path');
const { name, version, optionalDependencies } = require('../package.json');

const FORWARDED = ['SIGINT', 'SIGTERM', 'SIGHUP'];

// As in shells: what was found could not be started, nothing was found.
const NOT_STARTED = 126;
const NOT_FOUND = 127;

// The directory of this package.
const PACKAGE = dirname(__dirname);

const RELEASES = 'https://github.com/ipybox-rs/ipybox/releases';

// The loaders of programs that are linked to one C library or the other.
const LOADERS = {
  arm64: { glibc: '/lib/ld-linux-aarch64.so.1', musl: '/lib/ld-musl-aarch64.so.1' },
  x64: { glibc: '/lib64/ld-linux-x86-64.so.2', musl: '/lib/ld-musl-x86_64.so.1' },
};

function fail(code, lines) {
  process.stderr.write(lines.join('\n') + '\n');
  process.exitCode = code;
}

// True on a system of glibc. Where both loaders are, musl may only pretend to be glibc (Alpine's gcompat), and
// the binary for musl needs neither.
function hasGlibc() {
  const { glibc, musl } = LOADERS[process.arch];
  return existsSync(glibc) && !existsSync(musl);
}

// The packages whose binary can run here, the better one first. Without glibc the one that is linked to it is not among
// them; the one for musl is static, so that it runs everywhere.
function packagesForThisMachine() {
  const platform = `/${process.platform}-${process.arch}`;
  const all = Object.keys(optionalDependencies);
  const exact = all.filter((one) => one.endsWith(platform));
  const musl = all.filter((one) => one.endsWith(`${platform}-musl`));
  return musl.length > 0 && !hasGlibc() ? musl : exact.concat(musl);
}

// The path of the binary in an installed package: below this one, or beside it. Node.js would look in all directories above, and in
// those of $NODE_PATH, where others may have put a package of this name. Yarn's Plug'n'Play knows exactly one.
function binaryOf(packageName) {
  if (!process.versions.pnp) {
    const places = [join(PACKAGE, 'node_modules'), dirname(PACKAGE)];
    return places.map((place) => join(place, packageName, 'bin', 'ipybox')).find((path) => existsSync(path));
  }
  try {
    return require.resolve(`${packageName}/bin/ipybox`);
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

// The workspace that ipybox is asked to sandbox code in, if this package is in it: such code could replace the package.
function workspaceAround(args) {
  const given = args.findIndex((one) => one === '--workspace' || one.startsWith('--workspace='));
  const named = given < 0 ? '.' : args[given].slice('--workspace='.length) || args[given + 1] || '.';
  try {
    const workspace = realpathSync(resolve(named));
    return args.includes('--sandbox') && PACKAGE.startsWith(workspace + sep) ? workspace : undefined;
  } catch {
    // It is missing yet, so that nothing is in it.
    return undefined;
  }
}

function reportExposed(workspace) {
  fail(NOT_STARTED, [
    `error: \`${PACKAGE}\` is in the workspace \`${workspace}\`, where code in the sandbox could replace it`,
    `hint: start it from outside: after \`npm install -g ${name}\`, or by`,
    `      \`sh -c 'cd / && exec npx -y ${name} "$@"' ${name} --workspace ${workspace}\``,
  ]);
}

function reportUnsupported() {
  const supported = 'Linux (x64, arm64) and macOS (x64, arm64)';
  const lines = [`error: ${name} does not run on ${process.platform} ${process.arch}, but on ${supported}`];
  if (process.platform === 'win32') {
    lines.push(
      'It needs Unix sockets and process groups.',
      'hint: run it in the Windows Subsystem for Linux; for an MCP client, the command `wsl` with the arguments',
      `      \`--cd / npx -y ${name} --workspace /home/you/workspace\``,
    );
  } else {
    lines.push(`hint: \`cargo install ${name}\` builds it from source`);
  }
  fail(NOT_FOUND, lines);
}

// npx keeps what it installed in a directory of its own, and does not repair it.
function directoryOfNpx() {
  const found = /^(.*[\\/]_npx[\\/][^\\/]+)[\\/]node_modules[\\/]/.exec(__dirname);
  return found && found[1];
}

function reportMissing(wanted) {
  const others = Object.keys(optionalDependencies).filter(binaryOf);
  const lines = [
    `error: \`${wanted}\`, the package with the ${name} binary for this machine, is not installed`,
    `It is an optional dependency of \`${name}\`. npm omits it on request (\`--omit=optional\`, \`--no-optional\`,`,
    '`omit=optional` in an .npmrc), if package-lock.json was made without it on another platform, and if its download',
    'fails; and it is not there if node_modules was copied from another platform.',
  ];
  if (others.length > 0) lines.push(`Installed is ${others.map((other) => `\`${other}\``).join(', ')}.`);
  // npm asks which C library Node.js has, which need not be what programs find (NixOS).
  const options = wanted.endsWith('-musl') ? '--include=optional --libc=musl' : '--include=optional';
  const npx = directoryOfNpx();
  if (npx) {
    lines.push(`hint: delete \`${npx}\` and run \`npx ${options} -y ${name}@${version}\` in \`/\``);
  } else {
    lines.push(
      `hint: run \`npm install ${options} ${name}@${version}\`, with \`-g\` if it is installed globally;`,
      '      if that does not help, delete node_modules and package-lock.json before',
    );
  }
  lines.push(`hint: binaries without npm: ${RELEASES}`);
  fail(NOT_FOUND, lines);
}

function reportNotStarted(binary, error) {
  const hint =
    error.code === 'EACCES'
      ? 'it must be executable (`chmod +x`), on a file system that is not mounted with `noexec`'
      : `install \`${name}\` again; binaries without npm: ${RELEASES}`;
  fail(NOT_STARTED, [`error: could not start \`${binary}\`: ${error.message}`, `hint: ${hint}`]);
}

// Ends this process as the binary ended.
function endLike(code, signal) {
  if (signal === null) process.exit(code);
  FORWARDED.forEach((forwarded) => process.removeAllListeners(forwarded));
  process.kill(process.pid, signal);
  // Still here: Node.js ignores some signals (SIGPIPE) and catches others (SIGSEGV).
  const number = require('os').constants.signals[signal];
  setTimeout(() => process.exit(128 + number), 100);
}

function run(binary) {
  let child;
  // Before the start, so that at no time a signal ends us alone. A terminal signals the binary too, which ends by the
  // first and does not mind the second.
  FORWARDED.forEach((signal) => process.on(signal, () => child.kill(signal)));
  child = spawn(binary, process.argv.slice(2), { stdio: 'inherit' });
  child.on('exit', endLike);
  child.on('error', (error) => {
    if (child.pid === undefined) reportNotStarted(binary, error);
    else throw error;
  });
}

function main() {
  const candidates = packagesForThisMachine();
  if (candidates.length === 0) return reportUnsupported();
  const workspace = workspaceAround(process.argv.slice(2));
  if (workspace) return reportExposed(workspace);
  for (const candidate of candidates) {
    const binary = binaryOf(candidate);
    if (binary) return run(binary);
  }
  return reportMissing(candidates[0]);
}

main();
