//! The report as text for people. Pure.

use std::fmt;

use super::Report;
use crate::ground::text::Emphasis;
use crate::kernels::sandbox::SandboxBackend;
use crate::kernels::sandbox::check::{CheckFinding, FindingStatus};

/// The column at which the text of a finding begins: after its mark and the longest name.
const INDENT: usize = 28;
/// The column at which lines are broken.
const WIDTH: usize = 100;

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "ipybox {} on {}", self.version, self.platform)?;
        let groups = &self.groups;
        for (title, findings) in [
            ("Kernel", &groups.kernel),
            ("MCP servers", &groups.mcp_servers),
            ("Sandbox (srt)", &groups.sandbox_srt),
            ("Sandbox (bwrap)", &groups.sandbox_bwrap),
            ("Hardening", &groups.hardening),
            ("Limits around a session", &groups.limits),
        ] {
            writeln!(formatter, "\n{}", Emphasis::Title.within(formatter, title))?;
            findings.iter().try_for_each(|finding| show(finding, formatter))?;
        }
        let answer = |can: bool, formatter: &fmt::Formatter<'_>| {
            let (emphasis, word) = if can { (Emphasis::Good, "yes") } else { (Emphasis::Bad, "no") };
            emphasis.within(formatter, word)
        };
        let can_run = answer(self.can_run, formatter);
        writeln!(formatter, "\n{:<51}{can_run}", "Can run without a sandbox:")?;
        for (flags, backend) in [
            ("`--sandbox`", SandboxBackend::Srt),
            ("`--sandbox --sandbox-backend bwrap`", SandboxBackend::Bubblewrap),
        ] {
            let label = format!("Can run with {flags}:");
            let can_sandbox = answer(self.can_sandbox(backend), formatter);
            writeln!(formatter, "{label:<51}{can_sandbox}")?;
        }
        Ok(())
    }
}

fn show(finding: &CheckFinding, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mark, emphasis) = match finding.status {
        FindingStatus::Ok => ("ok", Emphasis::Good),
        FindingStatus::Warning => ("warning", Emphasis::Warning),
        FindingStatus::Failed => ("FAILED", Emphasis::Bad),
        FindingStatus::NotNeeded => ("-", Emphasis::Quiet),
    };
    let mark = emphasis.within(formatter, &format!("{mark:<8}"));
    let remedy = finding.remedy.as_ref().map(|remedy| format!("→ {}", remedy.words()));
    let lines = [Some(finding.found.clone()), finding.consequence.clone(), remedy];
    let mut lines = lines.iter().flatten().flat_map(|text| folded(text));
    let first = lines.next().unwrap_or_default();
    writeln!(formatter, "  {mark}{:<18}{first}", finding.name)?;
    lines.try_for_each(|line| writeln!(formatter, "{:INDENT$}{line}", ""))
}

/// `text` in lines that fit beside the names; commands stay whole, so that they can be copied.
fn folded(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut current = String::new();
        for word in pieces(line) {
            let width = current.chars().count() + 1 + word.chars().count();
            if !current.is_empty() && width > WIDTH - INDENT {
                lines.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(&word);
        }
        lines.push(current);
    }
    lines
}

/// Words; text between backticks is one word.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut is_inside = false;
    for word in line.split(' ') {
        match pieces.last_mut() {
            Some(last) if is_inside => {
                last.push(' ');
                last.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        is_inside ^= word.matches('`').count() % 2 == 1;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::{Groups, Report};
    use super::*;
    use crate::kernels::sandbox::check::CheckRemedy;

    #[test]
    fn what_is_between_backticks_stays_in_one_line() {
        assert_eq!(pieces("run `a b c` or d"), ["run", "`a b c`", "or", "d"]);
        let long = format!("run `{}`", "word ".repeat(30));
        assert_eq!(folded(&long).len(), 2);
        assert_eq!(folded("one\ntwo"), ["one", "two"]);
    }

    #[test]
    fn a_report_says_what_is_wrong_and_how_to_fix_it() {
        let ok = || vec![CheckFinding::ok("node", "24.1.0 (`/usr/bin/node`)")];
        let missing = CheckFinding::failed(
            "socat",
            "not on PATH",
            "srt connects the sandbox with its proxies by it",
            CheckRemedy::Command("sudo apt install socat".to_owned()),
        );
        let report = Report::new(Groups {
            kernel: ok(),
            mcp_servers: ok(),
            sandbox_srt: vec![missing, CheckFinding::not_needed("start", "not tried")],
            sandbox_bwrap: ok(),
            hardening: ok(),
            limits: ok(),
        });
        assert!(format!("{report:#}").contains("  \u{1b}[1;31mFAILED  \u{1b}[0msocat  "));
        let text = report.to_string();
        let (_, text) = text.split_once("Sandbox (srt)\n").unwrap();
        insta::assert_snapshot!(text, @r"
          FAILED  socat             not on PATH
                                    srt connects the sandbox with its proxies by it
                                    → run `sudo apt install socat`
          -       start             not tried

        Sandbox (bwrap)
          ok      node              24.1.0 (`/usr/bin/node`)

        Hardening
          ok      node              24.1.0 (`/usr/bin/node`)

        Limits around a session
          ok      node              24.1.0 (`/usr/bin/node`)

        Can run without a sandbox:                         yes
        Can run with `--sandbox`:                          no
        Can run with `--sandbox --sandbox-backend bwrap`:  yes
        ");
        assert!(
            report.can_run()
                && !report.can_sandbox(SandboxBackend::Srt)
                && report.can_sandbox(SandboxBackend::Bubblewrap)
        );
    }

    #[test]
    fn without_a_kernel_there_is_no_sandbox_either() {
        let failed = CheckFinding::failed("python", "none", "", CheckRemedy::Advice("install it".to_owned()));
        let [mcp_servers, sandbox_srt, sandbox_bwrap, hardening, limits] = [(); 5].map(|()| Vec::new());
        let kernel = vec![failed];
        let report =
            Report::new(Groups { kernel, mcp_servers, sandbox_srt, sandbox_bwrap, hardening, limits });
        assert!(!report.can_run() && !report.can_sandbox(SandboxBackend::Srt));
    }
}
