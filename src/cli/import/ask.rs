//! Questions on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use ipybox::ImportServer;

/// Whether there is a user to ask.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Which of the servers the user wants, and whose secrets may be kept apart.
pub(super) fn choose(servers: &[ImportServer]) -> io::Result<Vec<ImportServer>> {
    let question = match servers.len() {
        1 => "Import it? [y/n]: ".to_owned(),
        count => format!("Import these {count}? [a]ll, [c]hoose, [n]one: "),
    };
    let mut chosen = Vec::new();
    loop {
        match answer(&question)?.as_deref() {
            Some("a" | "all" | "y" | "yes") => {
                chosen.extend(servers.iter().cloned());
                break;
            }
            Some("c" | "choose") => {
                for server in servers {
                    if says_yes(&format!("  {}  {}  [y/n]: ", server.name, server.what))? {
                        chosen.push(server.clone());
                    }
                }
                break;
            }
            None | Some("n" | "none" | "no" | "") => return Ok(chosen),
            Some(_) => {}
        }
    }
    let secrets: usize = chosen.iter().map(|server| server.secrets.len()).sum();
    if secrets > 0 {
        let values = if secrets == 1 { "1 value looks" } else { &format!("{secrets} values look") };
        let question = format!("{values} like a secret in clear text. Keep in the keyring? [y/n]: ");
        if !says_yes(&question)? {
            let left = chosen.extract_if(.., |server| !server.secrets.is_empty());
            let left: Vec<String> = left.map(|server| server.name).collect();
            writeln!(
                crate::cli::stderr(),
                "Left out: {}. Write their secrets as ${{VARIABLE}} where they are configured, and import again.",
                left.join(", ")
            )?;
        }
    }
    Ok(chosen)
}

fn says_yes(question: &str) -> io::Result<bool> {
    loop {
        match answer(question)?.as_deref() {
            Some("y" | "yes") => return Ok(true),
            None | Some("n" | "no" | "") => return Ok(false),
            Some(_) => {}
        }
    }
}

/// The answer in lower case; `None` at the end of the input.
fn answer(question: &str) -> io::Result<Option<String>> {
    let mut stderr = crate::cli::stderr();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line)? {
        0 => {
            writeln!(stderr)?;
            Ok(None)
        }
        _ => Ok(Some(line.trim().to_lowercase())),
    }
}
