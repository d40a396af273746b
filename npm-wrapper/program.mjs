// For the scripts that pack a program.

// The system that a program file is made for: `{ os, cpu }`, and for Linux the `loader` that it names, if any.
export function describeProgram(bytes) {
  if (bytes.length >= 64 && bytes.readUInt32BE(0) === 0x7f454c46 && bytes[4] === 2) {
    const cpu = { 62: 'x64', 183: 'arm64' }[bytes.readUInt16LE(18)];
    return { os: 'linux', cpu, loader: elfLoader(bytes) };
  }
  if (bytes.length >= 32 && bytes.readUInt32LE(0) === 0xfeedfacf) {
    const cpu = { 0x01000007: 'x64', 0x0100000c: 'arm64' }[bytes.readUInt32LE(4)];
    return { os: 'darwin', cpu };
  }
  return {};
}

// The path in the ELF segment PT_INTERP; a static program has none.
function elfLoader(bytes) {
  const table = Number(bytes.readBigUInt64LE(32));
  const size = bytes.readUInt16LE(54);
  for (let i = 0; i < bytes.readUInt16LE(56); i += 1) {
    const entry = table + i * size;
    if (entry + 40 > bytes.length) break; // The file is cut short.
    if (bytes.readUInt32LE(entry) === 3) {
      const begin = Number(bytes.readBigUInt64LE(entry + 8));
      const end = begin + Number(bytes.readBigUInt64LE(entry + 32));
      return bytes.toString('latin1', begin, end - 1);
    }
  }
  return undefined;
}
