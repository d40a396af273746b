// The colours of Python. What is not understood is plain text: nothing depends on them.
"use strict";

const KEYWORDS = new Set(
  ("and as assert async await break case class continue def del elif else except finally for from global if import in is " +
    "lambda match nonlocal not or pass raise return try while with yield True False None").split(" "),
);
// In the order in which they are tried: comments and IPython's own lines, texts, numbers, words.
const TOKENS = new RegExp(
  [
    /(?<comment>#[^\n]*|^[ \t]*[%!][^\n]*)/,
    /(?<string>(?<![\p{L}\p{N}_])(?:[rR][bBfFtT]?|[bBfFtT][rR]?|[uU])?(?:"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))|"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?))/,
    /(?<number>(?<![\p{L}\p{N}_.])(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?j?))/,
    /(?<word>[\p{L}_][\p{L}\p{N}_]*)/,
  ]
    .map((part) => part.source)
    .join("|"),
  "gmu",
);
// Longer code is not coloured: it would take the browser too long.
const COLOURED_CHARS = 20000;

// The code as nodes.
function coloured(code) {
  if (code.length > COLOURED_CHARS) return [document.createTextNode(code)];
  const nodes = [];
  let done = 0;
  for (const { 0: text, index, groups } of code.matchAll(TOKENS)) {
    const kind = groups.word ? KEYWORDS.has(text) && "keyword" : Object.keys(groups).find((name) => groups[name]);
    if (!kind) continue;
    if (index > done) nodes.push(document.createTextNode(code.slice(done, index)));
    nodes.push(make("span", kind, text));
    done = index + text.length;
  }
  nodes.push(document.createTextNode(code.slice(done)));
  return nodes;
}
