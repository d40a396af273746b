//! `ipybox audit`: reads audit logs, and prints its report on stdout.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use ipybox::{AuditFilter, AuditReview};

use serde_json::{Value, json};

use super::{print, print_message, stdout};

/// The exit code if no break was found, but something may be missing at the beginning or the end.
const INCOMPLETE: u8 = 3;

/// The part of a file that is read at once, in bytes.
const BUFFER: usize = 256 * 1024;

/// The flags of `ipybox audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// The log, or its files in order, the oldest first (`FILE.2 FILE.1 FILE`); `-` is stdin
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Print JSON, whose keys do not change
    #[arg(long)]
    pub(crate) json: bool,

    /// Report only this session: its id, or the beginning of it
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// Report only calls of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,

    /// Report only what happened then or later: a time as in the log, or how long ago (90s, 30m, 2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<f64>,

    /// Report only what happened then or earlier
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<f64>,

    /// Has moved
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// Verify that the log still contains the record with this hash, which an earlier `ipybox audit` printed as its head;
    /// may be repeated
    #[arg(long, value_name = "HASH")]
    pub(crate) head: Vec<String>,

    /// Print the records as events of OCSF, one a line, as far as the chain is whole
    #[arg(long, conflicts_with = "json")]
    pub(crate) ocsf: bool,

    /// The user whose log it is, as OCSF describes users in JSON [default: the owner of the file]
    #[arg(long, hide = true, value_name = "JSON", value_parser = user, requires = "ocsf")]
    pub(crate) user: Option<Value>,
}

/// Ends with success if the log is whole, and with 3 if that is not sure.
pub(super) fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    if let Some(policy) = args.policy {
        anyhow::bail!(
            "ask a policy about an audit log: that is a mode of `ipybox replay` now\n\
             hint: ipybox replay FILE --mode policy --approval-policy {}",
            policy.display()
        );
    }
    let mut filter = AuditFilter::default();
    (filter.session, filter.server) = (args.session, args.server);
    (filter.since, filter.until) = (args.since, args.until);
    let mut review = AuditReview::new(filter, &args.head)?;
    if args.ocsf {
        let user = args.user.or_else(|| owner(args.files.last()?));
        review = review.exporting(user, Box::new(stdout()));
    }
    for path in &args.files {
        let read =
            open(path).and_then(|input| review.read(&name(path), BufReader::with_capacity(BUFFER, input)));
        read.with_context(|| format!("read the audit log `{}`", path.display()))?;
    }
    if args.ocsf {
        let report = review.finish_export().context("print the events")?;
        print_message(report.summary().trim_end());
        return Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let report = review.finish();
    let text = if args.json {
        report.to_json().context("write the report as JSON")? + "\n"
    } else {
        format!("{report:#}")
    };
    print(&text, "print the report")?;
    Ok(match (report.is_whole(), report.is_complete()) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(INCOMPLETE),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// The owner of a file, as OCSF describes users.
fn owner(path: &Path) -> Option<Value> {
    let id = std::fs::metadata(path).ok()?.uid();
    let known = nix::unistd::User::from_uid(id.into()).ok().flatten();
    let name = known.map_or_else(|| id.to_string(), |known| known.name);
    Some(json!({"uid": id.to_string(), "name": name}))
}

fn user(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<serde_json::Map<String, Value>>(text).map(Value::Object)
}

fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(Box::new(file)) }
}

fn name(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() }
}

/// A time in seconds since 1970.
fn time(text: &str) -> Result<f64, String> {
    if let Some(time) = ipybox::rfc3339_seconds(text) {
        return Ok(time);
    }
    let wrong =
        || "a time is one of RFC 3339 like `2026-01-31T12:00:00Z`, or how long ago, like `2h`".to_owned();
    let unit = match text.chars().last() {
        Some('s') => 1.0,
        Some('m') => 60.0,
        Some('h') => 3600.0,
        Some('d') => 86400.0,
        _ => return Err(wrong()),
    };
    let number = &text[..text.len() - 1];
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let ago: f64 = if is_number { number.parse().map_err(|_| wrong())? } else { return Err(wrong()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    Ok(now - ago * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_or_durations() {
        assert_eq!(time("1970-01-01T00:01:00.500Z"), Ok(60.5));
        assert_eq!(time("1970-01-01T01:00:00+01:00"), Ok(0.0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        for (text, ago) in [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("1.5d", 129_600.0)] {
            let difference = now - ago - time(text).unwrap();
            assert!(difference.abs() < 60.0, "{text}: {difference}");
        }
        for text in ["", "2", "h", "-2h", "1e3s", "infs", "2 h", "today", "2é"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
