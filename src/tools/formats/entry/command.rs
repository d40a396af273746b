//! Commands that are written in one text, as a list, or for another system.

use serde_json::{Map, Value, json};

use crate::connections::mcp_client::ParametersError;
use crate::ground::text::quoted;

/// Operators that only a shell understands.
const OPERATORS: &[&str] = &["&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"];

/// Splits the command, so that `command` is a program and `args` are its arguments.
pub(super) fn adopt(
    object: &mut Map<String, Value>,
    has_program: &dyn Fn(&str) -> bool,
    notes: &mut Vec<String>,
) -> Result<(), ParametersError> {
    match object.get("command").cloned() {
        Some(Value::Array(words)) => split_into(object, words),
        Some(Value::Object(inner)) => {
            // An editor's older form: the command's own `path`, `args` and `env`.
            for (key, own) in [("path", "command"), ("args", "args"), ("env", "env")] {
                if let Some(value) = inner.get(key).filter(|value| !value.is_null()) {
                    object.insert(own.to_owned(), value.clone());
                }
            }
        }
        Some(Value::String(line)) if line.trim().contains(char::is_whitespace) && !has_program(&line) => {
            let words = words(&line)?;
            let shown: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            notes.push(format!("`command` is taken as a command line: {}.", shown.join(" ")));
            split_into(object, words.into_iter().map(Value::String).collect());
        }
        _ => {}
    }
    if let Some(Value::String(command)) = object.get("command")
        && matches!(command.to_lowercase().as_str(), "cmd" | "cmd.exe")
        && !has_program(command)
        && let Some(Value::Array(args)) = object.get("args")
        && matches!(args.first().and_then(Value::as_str), Some("/c" | "/C"))
    {
        let words = args[1..].to_vec();
        notes.push("`cmd /c` was left out: it is for Windows.".to_owned());
        object.remove("args");
        split_into(object, words);
    }
    Ok(())
}

/// The first word is the command, the others go before the existing arguments.
fn split_into(object: &mut Map<String, Value>, words: Vec<Value>) {
    let mut words = words.into_iter();
    object.insert("command".to_owned(), words.next().unwrap_or_else(|| json!("")));
    let mut args: Vec<Value> = words.collect();
    if args.is_empty() {
        return;
    }
    match object.get_mut("args") {
        Some(Value::Array(given)) => {
            args.append(given);
            *given = args;
        }
        // Of the wrong type, which is reported later.
        Some(_) => {}
        None => drop(object.insert("args".to_owned(), Value::Array(args))),
    }
}

fn words(line: &str) -> Result<Vec<String>, ParametersError> {
    let needs_shell = || ParametersError::ShellLine { command: line.to_owned() };
    let words = shlex::split(line).ok_or_else(needs_shell)?;
    let is_operator =
        |word: &String| OPERATORS.contains(&word.as_str()) || word.contains("$(") || word.ends_with(';');
    if words.is_empty() || words.iter().any(is_operator) { Err(needs_shell()) } else { Ok(words) }
}
