//! The command line: flags → configuration → serving → exit code.

mod actions;
mod actions_export;
mod actions_serve;
mod apigen;
mod args;
mod attach;
mod audit;
mod changes;
mod claim_args;
mod doctor;
mod greeting;
mod headings;
mod hub_args;
mod import;
mod json_rpc;
mod logging;
mod login;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod memory;
mod notebook;
mod play;
#[cfg(target_os = "linux")]
mod pod;
mod registered_args;
mod replay;
mod reply_args;
mod sandbox_policy;
mod search;
mod serve_args;
mod servers;
mod session_args;
mod sessions;

mod signals;
#[cfg(feature = "team")]
mod team;
#[cfg(feature = "team")]
mod team_actions;
#[cfg(all(feature = "kubernetes", feature = "team"))]
mod team_sandboxes;
mod tool_server;
mod ui;
mod values;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use ipybox::telemetry::exporting;
use ipybox::{Config, printed};
use tokio::runtime::Runtime;

use self::args::{Args, Command, LogLevel};
use self::serve_args::{ApprovalArg, ServeArgs};

/// clap's exit code for wrong flags, for errors that only show after parsing.
const USAGE: u8 = 2;

/// The time that the last message may take to be read.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if matches!(args.command, None | Some(Command::JsonRpc | Command::SessionKeeper(_))) {
        memory::give_back();
    }
    #[cfg(target_os = "linux")]
    ipybox::raise_descriptors();
    if let Some(Command::JsonRpc) = args.command {
        return finish(json_rpc::run(args.log_level).map(|()| ExitCode::SUCCESS));
    }
    let log_level = match (&args.command, args.log_level) {
        // These commands show their progress themselves.
        (Some(Command::Import(_) | Command::Attach(_) | Command::Ui(_)), LogLevel::Info) => LogLevel::Warning,
        (_, level) => level,
    };
    let _log = logging::init(log_level);
    let done = match args.command {
        Some(Command::Apigen(args)) => apigen::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Attach(args)) => attach::run(args),
        Some(Command::Ui(args)) => ui::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Login(args)) => login::log_in(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Logout(args)) => login::log_out(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Actions(args)) => actions::run(args),
        Some(Command::Servers(args)) => servers::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Sessions(args)) => sessions::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::SessionKeeper(args)) => sessions::keep(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Search(args)) => search::run(args).map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Some(Command::Pod(args)) => pod::run(args),
        Some(Command::ToolServer(args)) => tool_server::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Audit(args)) => audit::run(args),
        Some(Command::Changes(args)) => changes::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Play(args)) => play::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Replay(args)) => replay::run(args),
        Some(Command::Notebook(args)) => notebook::run(args).map(|()| ExitCode::SUCCESS),
        Some(Command::Import(args)) => import::run(args),
        #[cfg(feature = "team")]
        Some(Command::Team(args)) => team::run(args),
        Some(Command::SandboxPolicy(args)) => sandbox_policy::run(args),
        Some(Command::JsonRpc) => unreachable!("it has a log of its own"),
        Some(Command::SandboxGateway) => Ok(ipybox::sandbox_gateway()),
        Some(Command::SandboxExec(args)) => become_program(&args.hardening, &args.command),
        None => match refusal(&args.serve) {
            Some(refusal) => {
                print_message(&refusal);
                return ExitCode::from(USAGE);
            }
            None if sessions::is_kept(&args.serve) => sessions::relay(args.serve).map(|()| ExitCode::SUCCESS),
            None => serve(args.serve).map(|()| ExitCode::SUCCESS),
        },
    };
    finish(done)
}

fn finish(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            print_last_message(format!("failed to {}", ipybox::describe(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// Why a combination of valid flags is refused.
fn refusal(args: &ServeArgs) -> Option<String> {
    if args.approval_policy.is_some() && !matches!(args.approval, None | Some(ApprovalArg::Policy)) {
        Some("`--approval-policy` goes with `--approval policy` alone: its rules would not decide".to_owned())
    } else {
        args.claims.refusal().or_else(|| args.hub.refusal())
    }
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let asks_nobody =
        matches!(args.approval, None | Some(ApprovalArg::Auto)) && args.approval_policy.is_none();
    if args.approve_shell_cmds && asks_nobody {
        tracing::warn!("`--approve-shell-cmds` asks nobody with `--approval auto`: shell commands run");
    }
    let config = Config::new(args.into())?;
    for problem in config.variables().problems() {
        tracing::warn!("{problem}");
    }
    let workspace = config.workspace().to_owned();
    let runtime = multi_threaded()?;
    // The two futures around it would each keep room for it.
    let serving = Box::pin(ipybox::serve_stdio(config));
    let served = runtime.block_on(exporting(greeting::greeting(&workspace, serving)));
    // A read of a terminal cannot be interrupted; do not wait for it.
    runtime.shutdown_background();
    Ok(served?)
}

fn become_program(hardening: &str, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else { anyhow::bail!("become no program") };
    let never = ipybox::sandbox_exec(hardening, program, arguments)
        .with_context(|| format!("become `{}`", program.display()))?;
    match never {}
}

/// A runtime with a thread for each processor.
fn multi_threaded() -> anyhow::Result<Runtime> {
    started(tokio::runtime::Builder::new_multi_thread())
}

/// A runtime of this thread alone.
fn single_threaded() -> anyhow::Result<Runtime> {
    started(tokio::runtime::Builder::new_current_thread())
}

fn started(mut builder: tokio::runtime::Builder) -> anyhow::Result<Runtime> {
    builder.enable_all().build().context("start the async runtime")
}

/// Prints a text on stdout, its emphasis on terminals alone that show it and whose user wants it; a reader that has had
/// enough is no error.
fn print(text: &str, action: &'static str) -> anyhow::Result<()> {
    let mut stdout = stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context(action),
        _ => Ok(()),
    }
}

/// The stdout of commands: what code, files and servers have in a text steers no terminal.
fn stdout() -> Printer<impl Write> {
    Printer(anstream::stdout())
}

/// The same for stderr.
fn stderr() -> Printer<impl Write> {
    Printer(anstream::stderr())
}

/// Writes texts as they may be printed. Each is written whole.
struct Printer<W>(W);

impl<W: Write> Write for Printer<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write_all(printed(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Prints the message with which the program ends: a client that does not read stderr must see that end all the same.
fn print_last_message(message: String) {
    let (printed, is_printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        print_message(&message);
        printed.send(())
    });
    // An error says that nobody reads it.
    is_printed.recv_timeout(LAST_MESSAGE).ok();
}

/// Prints a message for the user on stderr; stdout is the protocol's.
fn print_message(message: &str) {
    // Nothing can be done for a user whose stderr is closed.
    writeln!(stderr(), "ipybox: {message}").ok();
}
