// Writes the npm package that carries the binary for one platform. Everything that such a package is called and which
// version it has comes from package.json beside this file; what cannot be right is refused.

import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { describeProgram } from './program.mjs';

const USAGE = `\
usage: node npm-wrapper/platform.mjs --target TRIPLE --binary FILE --out DIR [--any-glibc]
       node npm-wrapper/platform.mjs --check

Writes the npm package for one platform to DIR/PLATFORM (anew if it is there) and prints its path, to be given to
\`npm pack\` or \`npm publish\`. Checks first that the versions and names of npm-wrapper/package.json and Cargo.toml agree
and that FILE is a program for TRIPLE; --check does the former alone.

  --target TRIPLE  Rust's name of the platform, one of:
TARGETS
  --binary FILE    the release binary of ipybox for it
  --out DIR        where packages are written, each to a directory of its own
  --any-glibc      take a binary that needs a newer glibc than the packages promise: for trying one out here
  --check          write nothing
`;

const TARGETS = {
  'x86_64-unknown-linux-gnu': { platform: 'linux-x64', os: 'linux', cpu: 'x64', libc: 'glibc' },
  'aarch64-unknown-linux-gnu': { platform: 'linux-arm64', os: 'linux', cpu: 'arm64', libc: 'glibc' },
  'x86_64-unknown-linux-musl': { platform: 'linux-x64-musl', os: 'linux', cpu: 'x64', libc: 'musl' },
  'aarch64-unknown-linux-musl': { platform: 'linux-arm64-musl', os: 'linux', cpu: 'arm64', libc: 'musl' },
  'x86_64-apple-darwin': { platform: 'darwin-x64', os: 'darwin', cpu: 'x64' },
  'aarch64-apple-darwin': { platform: 'darwin-arm64', os: 'darwin', cpu: 'arm64' },
};

// The oldest minor version of glibc 2 that the packages for it promise to run on.
const OLDEST_GLIBC_MINOR = 17;

const WRAPPER_DIR = dirname(fileURLToPath(import.meta.url));
const REPOSITORY_DIR = dirname(WRAPPER_DIR);

// An error to be reported in one line.
class Refusal extends Error {}

class Usage extends Refusal {}

function usage() {
  const targets = Object.keys(TARGETS).map((target) => `                     ${target}`);
  return USAGE.replace('TARGETS', targets.join('\n'));
}

// The value of a key in a table of Cargo.toml; both are written one per line there.
function cargoValue(manifest, table, key) {
  const body = manifest.split(/^\[/m).find((part) => part.startsWith(`${table}]`));
  const found = body && new RegExp(`^${key}\\s*=\\s*"([^"]*)"`, 'm').exec(body);
  if (!found) throw new Refusal(`Cargo.toml: no \`${key}\` in [${table}]`);
  return found[1];
}

function expectEqual(what, actual, expected) {
  if (actual !== expected) {
    throw new Refusal(`npm-wrapper/package.json: ${what} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`);
  }
}

// Checks package.json of the wrapper against Cargo.toml and gives both what platform packages take from there.
function checkedWrapper() {
  const wrapper = JSON.parse(readFileSync(join(WRAPPER_DIR, 'package.json'), 'utf8'));
  const manifest = readFileSync(join(REPOSITORY_DIR, 'Cargo.toml'), 'utf8');
  const scope = cargoValue(manifest, 'package.metadata.names', 'npm-platforms');
  const version = cargoValue(manifest, 'workspace.package', 'version');
  expectEqual('`name`', wrapper.name, cargoValue(manifest, 'package.metadata.names', 'npm'));
  expectEqual('`mcpName`', wrapper.mcpName, cargoValue(manifest, 'package.metadata.names', 'mcp-registry'));
  expectEqual('`version`', wrapper.version, version);
  expectEqual('`license`', wrapper.license, cargoValue(manifest, 'workspace.package', 'license'));
  expectEqual('`repository.url`', wrapper.repository.url, `git+${cargoValue(manifest, 'workspace.package', 'repository')}.git`);
  const packages = Object.values(TARGETS).map(({ platform }) => `${scope}/${platform}`);
  const listed = Object.keys(wrapper.optionalDependencies);
  expectEqual('the names in `optionalDependencies`', listed.sort().join(' '), packages.sort().join(' '));
  for (const name of listed) expectEqual(`the version of \`${name}\``, wrapper.optionalDependencies[name], version);
  const license = readFileSync(join(REPOSITORY_DIR, 'LICENSE'));
  if (!license.equals(readFileSync(join(WRAPPER_DIR, 'LICENSE')))) {
    throw new Refusal('npm-wrapper/LICENSE is not a copy of LICENSE');
  }
  return { wrapper, scope };
}

// The newest minor version of glibc 2 of which a program wants a symbol.
function newestGlibcMinor(bytes) {
  const wanted = bytes.toString('latin1').matchAll(/\0GLIBC_2\.(\d+)(?=[\0.])/g);
  return Math.max(0, ...Array.from(wanted, ([, minor]) => Number(minor)));
}

function checkProgram(file, bytes, target, { os, cpu, libc }, anyGlibc) {
  const program = describeProgram(bytes);
  if (program.os !== os || program.cpu !== cpu) {
    const found = program.os ? `for ${program.os} ${program.cpu ?? 'on an unknown machine'}` : 'no program of 64 bits';
    throw new Refusal(`${file} is ${found}, not for ${target}`);
  }
  if (libc === 'musl' && program.loader) {
    throw new Refusal(`${file} is linked to ${program.loader}; the package for musl carries a static program`);
  }
  if (libc === 'glibc' && !/\/ld-linux-/.test(program.loader ?? '')) {
    throw new Refusal(`${file} is ${program.loader ? `linked to ${program.loader}` : 'static'}, not linked to glibc`);
  }
  const minor = libc === 'glibc' ? newestGlibcMinor(bytes) : 0;
  if (minor > OLDEST_GLIBC_MINOR && !anyGlibc) {
    throw new Refusal(`${file} needs glibc 2.${minor}; the package promises to run on 2.${OLDEST_GLIBC_MINOR}`);
  }
}

function manifestOf(wrapper, name, { os, cpu, libc }) {
  return {
    name,
    version: wrapper.version,
    description: `The ${wrapper.name} binary for ${describePlatform({ os, cpu, libc })}`,
    homepage: wrapper.homepage,
    bugs: wrapper.bugs,
    repository: wrapper.repository,
    license: wrapper.license,
    author: wrapper.author,
    files: ['bin'],
    os: [os],
    cpu: [cpu],
    ...(libc && { libc: [libc] }),
    // For package managers that leave packages in archives: a program must be a file.
    preferUnplugged: true,
    publishConfig: wrapper.publishConfig,
  };
}

function describePlatform({ os, cpu, libc }) {
  const system = { darwin: 'macOS', linux: 'Linux' }[os];
  const library = { glibc: `, glibc 2.${OLDEST_GLIBC_MINOR} or newer`, musl: ', static (musl)' }[libc] ?? '';
  return `${system} ${cpu}${library}`;
}

function readmeOf(wrapper, name, target) {
  return [
    `# ${name}\n`,
    `The \`${wrapper.name}\` binary for ${describePlatform(TARGETS[target])} (\`${target}\`).\n`,
    `It is an optional dependency of the package \`${wrapper.name}\`, which picks it by platform. Install that one:\n`,
    `\`\`\`sh\nnpm install -g ${wrapper.name}\n\`\`\`\n`,
    `What it is: ${wrapper.homepage}\n`,
  ].join('\n');
}

function writePackage({ target, binary, out, anyGlibc }) {
  const platform = TARGETS[target];
  if (!platform) throw new Usage(`unknown target ${JSON.stringify(target)}`);
  const { wrapper, scope } = checkedWrapper();
  if (!existsSync(binary)) throw new Refusal(`there is no file ${binary}`);
  checkProgram(binary, readFileSync(binary), target, platform, anyGlibc);
  const name = `${scope}/${platform.platform}`;
  const directory = join(out, platform.platform);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(join(directory, 'bin'), { recursive: true });
  const manifest = manifestOf(wrapper, name, platform);
  writeFileSync(join(directory, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  writeFileSync(join(directory, 'README.md'), readmeOf(wrapper, name, target));
  copyFileSync(join(REPOSITORY_DIR, 'LICENSE'), join(directory, 'LICENSE'));
  copyFileSync(binary, join(directory, 'bin', wrapper.name));
  // An upload of artifacts between jobs may have lost it.
  chmodSync(join(directory, 'bin', wrapper.name), 0o755);
  return directory;
}

function parse() {
  const options = {
    target: { type: 'string' },
    binary: { type: 'string' },
    out: { type: 'string' },
    'any-glibc': { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  };
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    throw new Usage(error.message);
  }
}

function main() {
  const options = parse();
  if (options.help) return process.stdout.write(usage());
  if (options.check) return checkedWrapper();
  for (const required of ['target', 'binary', 'out']) {
    if (!options[required]) throw new Usage(`--${required} is missing`);
  }
  return process.stdout.write(`${writePackage({ ...options, anyGlibc: options['any-glibc'] })}\n`);
}

try {
  main();
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  process.stderr.write(`error: ${error.message}\n`);
  if (error instanceof Usage) process.stderr.write(`\n${usage()}`);
  process.exitCode = error instanceof Usage ? 2 : 1;
}
