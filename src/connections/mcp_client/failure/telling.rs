//! Finds the line that says why a program has failed in what it wrote last: pure.
//!
//! Stack traces have it at their end (Python), at their beginning (Node.js, Go, Java), or after a line that says where (Rust);
//! npm and uv surround it with advice.

/// The longest text that is shown, in characters.
const SHOWN_CHARS: usize = 600;
/// The most lines that belong to one that announces them.
const CONTINUED_LINES: usize = 3;

/// Beginnings of lines of errors, in lower case.
#[rustfmt::skip]
const ERRORS: &[&str] = &[
    "error:", "error ", "error[", "[error", "fatal:", "fatal ", "fatal error", "[fatal", "panic:", "uncaught ", "unhandled ",
    "exception in ", "caused by:", "php fatal", "[cause]:", "critical", "failed ", "failure", "could not ", "cannot ", "can't ",
    "unable to ", "missing ", "invalid ", "** (", "╰─▶", "×",
];
/// Beginnings of lines of stack traces, and of others that say nothing about the error. In lower case.
#[rustfmt::skip]
const NOISE: &[&str] = &[
    "at ", "from /", "file \"", "#0 ", "#1 ", "#2 ", "#3 ", "... ", "goroutine ", "created by ", "node.js v", "traceback ",
    "+ exception group", "during handling of", "the above exception", "require stack:", "- /", "note: ", "exit status ",
    "stack trace:", "stack backtrace:", "for further information", "for more information", "thrown in ", "see 'docker", "usage:",
    "npm notice", "[notice]", "shutting down", "exiting", "stopping", "execution halted",
];
/// Beginnings of lines of npm, after `npm error` or `npm ERR!`, that do not say what is wrong.
const OF_NPM: &[&str] = &[
    "code ",
    "errno ",
    "syscall ",
    "path ",
    "dest ",
    "command ",
    "a complete log",
    "    ",
    "enoent this is related",
];

/// The words that say why, of what a program wrote on its standard error. Empty if it wrote nothing.
pub(crate) fn telling(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(bare).collect();
    let found = of_npm(&lines).or_else(|| of_panic(&lines)).or_else(|| last_error(&lines));
    let found = found.or_else(|| lines.iter().rposition(|line| !is_noise(line)));
    let found = found.or_else(|| lines.iter().rposition(|line| !line.trim().is_empty()));
    let words = found.map(|at| with_continuation(&lines, at)).unwrap_or_default();
    crate::ground::text::shortened(&words, SHOWN_CHARS)
}

/// The line without the frame that Python draws around groups of exceptions, and without trailing blanks.
fn bare(line: &str) -> &str {
    let mut bare = line.trim_end();
    while let Some(inner) = bare.trim_start().strip_prefix("| ") {
        bare = inner;
    }
    bare
}

/// The line with those that it announces: causes, and the fields that are wrong.
fn with_continuation(lines: &[&str], at: usize) -> String {
    let mut words = lines[at].trim().to_owned();
    // What a cause is the cause of stands before it.
    if is_cause(lines[at])
        && let Some(head) = lines[..at].iter().rev().find(|line| is_error(line) && !is_cause(line))
    {
        words = format!("{}; {words}", head.trim());
    }
    if words.ends_with(':') || words.contains("validation error") {
        let following = lines[at + 1..].iter().skip_while(|line| line.trim().is_empty());
        let following = following.take_while(|line| !line.trim().is_empty() && !is_noise(line));
        for line in following.take(CONTINUED_LINES) {
            words.push(' ');
            words.push_str(line.trim());
        }
    } else if words.starts_with("╰─▶") {
        // uv breaks its lines.
        for line in lines[at + 1..].iter().take_while(|line| line.starts_with("      ")) {
            words.push(' ');
            words.push_str(line.trim());
        }
    }
    words
}

fn is_cause(line: &str) -> bool {
    line.trim_start().to_lowercase().starts_with("caused by:")
}

/// The last line that names an error. Of causes, the last one is the first.
fn last_error(lines: &[&str]) -> Option<usize> {
    lines.iter().rposition(|line| is_error(line))
}

/// Says whether the line names an error: a kind of error with its message, a message at the level of an error, or one after
/// the name of the program.
fn is_error(line: &str) -> bool {
    if is_noise(line) {
        return false;
    }
    let line = line.trim();
    let lower = line.to_lowercase();
    let begins = ERRORS.iter().any(|begin| lower.starts_with(begin));
    let has_level = [": error:", "] error", " error ", " fatal ", "\"error\"", "level=error", "level=fatal"];
    begins || is_exception(line) || has_level.iter().any(|level| lower.contains(level))
}

/// Says whether the line begins with the name of an exception: `pkg.mod.KeyError: 'x'`, `TypeError [CODE]: x`.
fn is_exception(line: &str) -> bool {
    const ENDS: [&str; 6] = ["Error", "Exception", "Exit", "Interrupt", "Failure", "Group"];
    let name = line.split([':', ' ', '(']).next().unwrap_or_default();
    let is_name = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '.' | '_' | '$'));
    let after = &line[name.len()..];
    is_name
        && ENDS.iter().any(|end| name.ends_with(end))
        && (after.is_empty() || after.starts_with(':') || after.starts_with(" ["))
}

/// Says whether the line belongs to a stack trace, is one of its decorations, or gives general advice.
fn is_noise(line: &str) -> bool {
    let trimmed = line.trim();
    let lower = trimmed.to_lowercase();
    let is_drawn =
        trimmed.chars().all(|letter| matches!(letter, '^' | '~' | '-' | '+' | '=' | ' ' | '}' | '{' | ']'))
            || trimmed.starts_with("+-");
    // `12: core::panicking::panic` and `main.main()` are frames of Rust and Go.
    let is_numbered = trimmed.split_once(": ").is_some_and(|(number, frame)| {
        number.bytes().all(|byte| byte.is_ascii_digit()) && frame.contains("::") && !number.is_empty()
    });
    let is_call = line.starts_with('\t') || trimmed.ends_with(')') && trimmed.contains(".go:");
    trimmed.is_empty()
        || is_drawn
        || is_numbered
        || is_call
        || NOISE.iter().any(|begin| lower.starts_with(begin))
}

/// The first line of npm after the code, which says what is wrong.
fn of_npm(lines: &[&str]) -> Option<usize> {
    let said = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("npm error ").or_else(|| line.strip_prefix("npm ERR! ")).map(str::to_lowercase)
    };
    lines.iter().position(|line| {
        said(line).is_some_and(|said| {
            let is_bare = said.trim().chars().all(|letter| letter.is_ascii_digit());
            !is_bare && !OF_NPM.iter().any(|begin| said.starts_with(begin))
        })
    })
}

/// The message of a panic of Rust, which stands below the line that says where; older versions have it in that line.
fn of_panic(lines: &[&str]) -> Option<usize> {
    let at = lines.iter().rposition(|line| line.starts_with("thread '") && line.contains("panicked at"))?;
    match lines.get(at + 1) {
        Some(message) if lines[at].ends_with(':') && !message.is_empty() => Some(at + 1),
        _ => Some(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stderr: &str, expected: &str) {
        assert_eq!(telling(stderr), expected, "{stderr}");
    }

    #[test]
    fn an_exception_of_python_is_at_the_end() {
        let frames = "Traceback (most recent call last):\n  File \"/a/s.py\", line 3, in <module>\n    main()\n    ~~~~^^\n";
        check(&format!("INFO starting\n{frames}KeyError: 'API_KEY'"), "KeyError: 'API_KEY'");
        check(&format!("{frames}pkg.errors.ConfigError: no key\n"), "pkg.errors.ConfigError: no key");
        check(&format!("{frames}AssertionError"), "AssertionError");
        let twice =
            "ValueError: first\n\nDuring handling of the above exception, another exception occurred:\n\n";
        check(&format!("{frames}{twice}{frames}OSError: second"), "OSError: second");
        let pydantic = "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings\napi_key\n  Field required \
                        [type=missing]\n    For further information visit https://errors.pydantic.dev/2.11/v/missing";
        check(
            &format!("{frames}{pydantic}"),
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key Field required [type=missing]",
        );
        let group = "  + Exception Group Traceback (most recent call last):\n  |   File \"/a/s.py\", line 3, in <module>\n  | \
                     ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 \
                     ----------------\n    | Traceback (most recent call last):\n    |   File \"/a/s.py\", line 9, in run\n    | \
                     ValueError: no key\n    +------------------------------------\n";
        check(group, "ValueError: no key");
        check(
            "usage: s [-h] --key KEY\ns: error: the following arguments are required: --key",
            "s: error: the following arguments are required: --key",
        );
    }

    #[test]
    fn an_error_of_javascript_is_above_its_frames() {
        check(
            "/a/index.js:5\n    throw new Error(\"no key\");\n    ^\n\nError: no key\n    at Object.<anonymous> (/a/index.js:5:11)\n    \
             at node:internal/main/run_main_module:36:49\n\nNode.js v22.1.0",
            "Error: no key",
        );
        check(
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/a/x.js'\n    at f (node:x:1)\n{\n  \
             code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v22.1.0",
            "Error: Cannot find module '/a/x.js'",
        );
        check(
            "TypeError [ERR_INVALID_URL]: Invalid URL\n    at new URL (node:internal/url:797:36) {\n  input: 'x'\n}",
            "TypeError [ERR_INVALID_URL]: Invalid URL",
        );
        check(
            "error: Uncaught (in promise) Error: no key\n    at file:///a/main.ts:1:7",
            "error: Uncaught (in promise) Error: no key",
        );
    }

    #[test]
    fn other_languages_say_it_in_their_places() {
        check(
            "panic: no key\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:5 +0x39\nexit status 2",
            "panic: no key",
        );
        check("2026/01/02 03:04:05 no key", "2026/01/02 03:04:05 no key");
        check(
            "Exception in thread \"main\" java.lang.IllegalStateException: cannot start\n\tat a.B.main(B.java:5)\nCaused by: \
             java.io.IOException: no key\n\tat a.B.read(B.java:9)\n\t... 1 more",
            "Exception in thread \"main\" java.lang.IllegalStateException: cannot start; Caused by: java.io.IOException: no key",
        );
        check(
            "thread 'main' panicked at src/main.rs:2:5:\nno key\nnote: run with `RUST_BACKTRACE=1` environment variable",
            "no key",
        );
        check(
            "thread 'main' (7) panicked at src/main.rs:2:5:\nno key\nstack backtrace:\n   0: std::panicking::begin\n             at /rustc/x.rs:1:2",
            "no key",
        );
        check(
            "thread 'main' panicked at 'no key', src/main.rs:2:5\nnote: run with",
            "thread 'main' panicked at 'no key', src/main.rs:2:5",
        );
        check("Error: cannot start\n\nCaused by:\n    no key", "Error: cannot start; Caused by: no key");
        check(
            "error: the following required arguments were not provided:\n  --key <KEY>\n\nUsage: s --key <KEY>\n\nFor more information, try '--help'.",
            "error: the following required arguments were not provided: --key <KEY>",
        );
        check(
            "Unhandled exception. System.InvalidOperationException: no key\n   at A.B.Main() in /a/P.cs:line 3",
            "Unhandled exception. System.InvalidOperationException: no key",
        );
        check(
            "PHP Fatal error:  Uncaught Exception: no key in /a/s.php:3\nStack trace:\n#0 {main}\n  thrown in /a/s.php on line 3",
            "PHP Fatal error:  Uncaught Exception: no key in /a/s.php:3",
        );
        check("sh: 1: nope: not found", "sh: 1: nope: not found");
        check(
            "docker: Error response from daemon: no such image.\nSee 'docker run --help'.",
            "docker: Error response from daemon: no such image.",
        );
    }

    #[test]
    fn installers_say_it_between_advice() {
        check(
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found\nnpm error 404\nnpm error 404  \
             'nope@*' is not in this registry.\nnpm error 404 Note that you can also install from a\nnpm error A complete log of this run can \
             be found in: /root/.npm/_logs/x.log",
            "npm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found",
        );
        check(
            "npm ERR! code ENOTFOUND\nnpm ERR! syscall getaddrinfo\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://r/x failed, \
             reason: getaddrinfo ENOTFOUND r\nnpm ERR! network This is a problem related to network connectivity.",
            "npm ERR! network request to https://r/x failed, reason: getaddrinfo ENOTFOUND r",
        );
        check(
            "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because nope was not found in the package registry and you require\n      \
             nope, we can conclude that your requirements are unsatisfiable.",
            "╰─▶ Because nope was not found in the package registry and you require nope, we can conclude that your requirements are \
             unsatisfiable.",
        );
        check(
            "error: Failed to fetch: `https://pypi.org/simple/nope/`\n  Caused by: Request failed after 3 retries\n  Caused by: dns error",
            "error: Failed to fetch: `https://pypi.org/simple/nope/`; Caused by: dns error",
        );
    }

    #[test]
    fn without_an_error_the_last_line_is_it() {
        check("", "");
        check("Missing API_KEY\n\nUsage: s --key KEY\n\nshutting down", "Missing API_KEY");
        check("[ERROR] no key\n[INFO] cleaning up", "[ERROR] no key");
        check("starting\nset API_KEY and start again\n\n", "set API_KEY and start again");
        check("    at x\n    at y", "at y");
    }
}
