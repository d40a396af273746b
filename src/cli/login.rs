//! `ipybox login` and `ipybox logout`.

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use futures::FutureExt as _;
use ipybox::KnownServers;

use super::registered_args::{LoginArgs, LogoutArgs};

/// The longest redirect URI that is read, in bytes.
const LONGEST_LINE: u64 = 64 * 1024;

pub(super) fn log_in(args: LoginArgs) -> anyhow::Result<()> {
    let servers = KnownServers::open(&args.place.workspace, args.place.state_dir)?;
    let no_browser = args.no_browser;
    let open = move |url: String| send_to(url, no_browser).boxed();
    let runtime = runtime()?;
    let logged_in = runtime.block_on(async {
        tokio::select! {
            logged_in = servers.login(&args.server, &args.scope, &open, args.timeout) => logged_in.map_err(Into::into),
            _ = tokio::signal::ctrl_c() => anyhow::bail!("log in: it was cancelled"),
        }
    });
    // A read of stdin cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    let name = logged_in?;
    writeln!(super::stdout(), "Logged in to `{name}`.").context("print the answer")
}

pub(super) fn log_out(args: &LogoutArgs) -> anyhow::Result<()> {
    let servers = KnownServers::open(&args.place.workspace, args.place.state_dir.clone())?;
    let answer =
        if runtime()?.block_on(servers.logout(&args.server))? { "is forgotten" } else { "was not there" };
    writeln!(super::stdout(), "The login to `{}` {answer}.", args.server).context("print the answer")
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the async runtime")
}

/// Sends the user to `url`. Returns the redirect URI if the user has pasted it.
async fn send_to(url: String, no_browser: bool) -> Result<Option<String>, String> {
    let is_open = !no_browser && open_browser(&url);
    let mut out = super::stdout();
    let mut error = super::stderr();
    let words = if is_open {
        "The browser opens this page; log in there, or open it by hand:"
    } else {
        "Open this page in a browser, and log in there:"
    };
    let shown = writeln!(error, "{words}").and_then(|()| writeln!(out, "{url}")).and_then(|()| out.flush());
    shown.map_err(|error| format!("the address could not be printed: {error}"))?;
    // The answer comes to this process by itself if the browser runs on this machine.
    if is_open && !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    writeln!(
        error,
        "If the browser runs on another machine, it ends at an address that it cannot open: paste that address here."
    )
    .ok();
    match tokio::task::spawn_blocking(pasted).await {
        Ok(Ok(Some(line))) => Ok(Some(line)),
        // Without stdin the browser still brings the answer.
        Ok(Ok(None)) => Ok(None),
        Ok(Err(error)) => Err(format!("stdin could not be read: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The first line of stdin that is not empty; `None` if there is none.
fn pasted() -> std::io::Result<Option<String>> {
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), LONGEST_LINE);
    let mut line = String::new();
    while stdin.read_line(&mut line)? > 0 {
        if !line.trim().is_empty() {
            return Ok(Some(line));
        }
        line.clear();
    }
    Ok(None)
}

/// Opens `url` in `$BROWSER`, else in the system's browser. Returns whether one was started.
fn open_browser(url: &str) -> bool {
    let named = std::env::var("BROWSER").unwrap_or_default();
    // As in Python's `webbrowser`: several commands, each with or without `%s` for the URL.
    let commands = named.split(':').filter(|command| !command.trim().is_empty());
    for words in commands.filter_map(shlex::split).filter(|words| !words.is_empty()) {
        let has_place = words.iter().any(|word| word.contains("%s"));
        let mut words: Vec<OsString> = words.iter().map(|word| word.replace("%s", url).into()).collect();
        if !has_place {
            words.push(url.into());
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return true;
        }
    }
    named.trim().is_empty() && has_desktop() && open::that_detached(url).is_ok()
}

/// Whether there may be a browser to open. On a server without a desktop a text browser would take the terminal.
fn has_desktop() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|name| is_set(name))
}
