//! Which arguments of a command choose the code that runs: those of programs that run others, up to the name
//! of the program that they run. Pure.
//!
//! `npx -y --prefix DIR server DIR`: the first directory decides which code runs, the second is an argument
//! of the server. In doubt an argument counts as one that chooses.

/// Programs that run the target named by a first argument: a package, a file, a directory or a command.
const LAUNCHERS: &[&str] = &[
    "npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "node", "nodejs", "deno", "tsx", "ts-node",
    "corepack", "volta", "python", "pythonw", "pypy", "ipython", "uv", "uvx", "pipx", "pixi", "rye",
    "fastmcp", "mcp", "sh", "bash", "zsh", "dash", "ash", "ksh", "fish", "csh", "tcsh", "pwsh", "busybox",
    "perl", "ruby", "bundle", "php", "lua", "luajit", "java", "jbang", "kotlin", "scala", "groovy", "dotnet",
    "go", "cargo", "swift", "julia", "rscript", "r", "elixir", "escript",
];

/// Programs that run a command after `--`, or anywhere among their arguments.
#[rustfmt::skip]
const WRAPPERS: &[&str] = &[
    "env", "nice", "ionice", "nohup", "setsid", "stdbuf", "timeout", "time", "chrt", "taskset", "sudo",
    "doas", "su", "runuser", "xargs", "srt", "bwrap", "firejail", "unshare", "nsenter", "chroot",
    "systemd-run", "dbus-run-session", "proxychains", "dotenv", "dotenvx", "op", "doppler", "infisical",
    "direnv", "mise", "asdf", "nix", "nix-shell", "devbox", "poetry", "pdm", "hatch", "conda", "mamba",
    "micromamba", "make", "just", "task", "git", "ssh", "docker-compose",
];

/// Programs that run a container, where no directory has effect unless it is mounted: `docker run`. Their
/// other commands read files of the directory that they are given.
const CONTAINERS: &[&str] = &["docker", "podman", "nerdctl", "container"];

/// Arguments that are commands of a launcher, before the name of what is run.
const COMMANDS: &[&str] = &["run", "tool", "exec", "x", "dlx", "start", "dev", "--"];

/// Options of launchers that take no value. Any other may: its next argument counts as the value.
#[rustfmt::skip]
const SWITCHES: &[&str] = &[
    "-y", "--yes", "-q", "--quiet", "--silent", "--offline", "--prefer-offline", "--no-cache", "--isolated",
    "--native-tls", "--refresh", "--no-project", "--no-config", "--no-env-file", "--bun", "--no-install",
    "--no-warnings", "-u", "-I", "-B", "-E", "-s", "-S", "-O", "-A", "--allow-all",
];

/// The number of `args` that choose what `command` runs.
pub(crate) fn chosen(command: &str, args: &[String]) -> usize {
    let name = name(command);
    if CONTAINERS.contains(&name.as_str()) {
        return if args.first().is_some_and(|first| first == "run") { 0 } else { args.len() };
    }
    if WRAPPERS.contains(&name.as_str()) {
        let program = args.iter().position(|word| word == "--").map_or(args.len(), |dashes| dashes + 1);
        return behind(program, args);
    }
    if !LAUNCHERS.contains(&name.as_str()) {
        return 0;
    }
    let mut index = 0;
    while let Some(word) = args.get(index) {
        match word.as_str() {
            _ if COMMANDS.contains(&word.as_str()) || SWITCHES.contains(&word.as_str()) => index += 1,
            _ if names_code(&name, word) => return (index + 2).min(args.len()),
            _ if word.starts_with("--") && word.contains('=') => index += 1,
            _ if word.starts_with('-') => index += 2,
            _ => return behind(index, args),
        }
    }
    args.len()
}

/// As [`chosen`], where the program is the argument at `index`: it may run another one itself.
fn behind(index: usize, args: &[String]) -> usize {
    match args.split_at_checked(index + 1) {
        Some((before, rest)) => before.len() + chosen(&before[index], rest),
        None => args.len(),
    }
}

/// Whether an option of an interpreter is followed by the code or module that it runs.
fn names_code(name: &str, word: &str) -> bool {
    let letters: &[char] = match name {
        "python" | "pythonw" | "pypy" | "ipython" => &['m', 'c'],
        "sh" | "bash" | "zsh" | "dash" | "ash" | "ksh" | "fish" | "csh" | "tcsh" | "busybox" => &['c'],
        "node" | "nodejs" | "bun" | "perl" | "ruby" | "lua" | "luajit" | "julia" | "php" => &['e'],
        _ => return false,
    };
    let is_cluster = word.len() > 1 && word.starts_with('-') && !word.starts_with("--");
    is_cluster && word.contains(letters)
}

/// The program's name without its directory, its version and, of a package, its scope: `python3.12`, `@scope/name@1`.
fn name(command: &str) -> String {
    let last = command.rsplit('/').next().unwrap_or_default();
    let plain = last.split(['@', '=']).next().unwrap_or_default();
    let plain = plain.strip_suffix(".exe").unwrap_or(plain);
    plain.trim_end_matches(|end: char| end.is_ascii_digit() || matches!(end, '.' | '-')).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of `line` before the bar are those that choose what runs, the first of them being the command.
    #[track_caller]
    fn check(line: &str) {
        let expected = line.split(" | ").next().unwrap();
        let words: Vec<String> = line.replace(" |", "").split(' ').map(str::to_owned).collect();
        let count = chosen(&words[0], &words[1..]);
        assert_eq!(words[..=count].join(" "), expected, "{line}");
    }

    #[test]
    fn arguments_of_a_server_choose_nothing() {
        check("mcp-server-git | --repository /w");
        check("/opt/bin/server | /w");
        check("docker | run -i -v /w:/w image /w");
        check("npx -y @scope/server | /w");
        check("npx --yes --package=@scope/a server | /w");
        check("uvx mcp-server-git | --repository /w");
        check("uvx --from mcp-server-git mcp-server-git | --repository /w");
        check("uv tool run mcp-server-git | /w");
        check("python3.12 -m server | /w");
        check("python -Im server | /w");
        check("/opt/venv/bin/python /opt/server.py | /w");
        check("node --no-warnings /opt/server.js | /w");
        check("srt --settings /f -- mcp-server-filesystem | /w");
        check("bunx server | /w");
    }

    #[test]
    fn arguments_that_decide_which_code_runs_are_counted() {
        check("node /w");
        check("python /w");
        check("npx -y --prefix /w server");
        check("npx -p /w server");
        check("npx -y tsx /w");
        check("npx -y tsx@4 /w/x | /w");
        check("uvx --from /w server");
        check("uv --directory /w run server.py");
        check("uv run --directory /w server.py");
        check("uv run python -m server | /w");
        check("sh -c /w | /w");
        check("bash -lc /w | x");
        check("env -C /w npx server");
        check("timeout 5 npx --prefix /w server");
        check("srt -- npx --prefix /w server");
        check("java -cp /w Main");
        check("docker compose --project-directory /w up");
        check("make -C /w serve");
    }
}
