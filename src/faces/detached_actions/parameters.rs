//! The parameters of a server as a script has them: secrets are variables of the environment. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::connections::mcp_client::{ParametersError, ServerParameters};
use crate::ground::env::SECRET;
use crate::tools::formats::replace_secrets;

/// The parameters with a placeholder `${NAME}` for each secret: those in clear text, and those that the vault keeps.
///
/// # Errors
/// They cannot be read.
pub(super) fn without_secrets(
    server: &str,
    parameters: &Map<String, Value>,
) -> Result<Map<String, Value>, ParametersError> {
    let mut parameters = ServerParameters::parse(parameters)?;
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    replace_secrets(&mut parameters, &mut |found| {
        let wanted = variable(server, found.key);
        // The same value has the same variable, and another value another one.
        let mut name = wanted.clone();
        let mut count = 1;
        while names.get(&name).is_some_and(|value| value != found.value) {
            count += 1;
            name = format!("{wanted}_{count}");
        }
        names.insert(name.clone(), found.value.to_owned());
        format!("${{{name}}}")
    });
    let mut object = parameters.shown_json();
    // They are for ipybox alone.
    for key in ["trust_workspace", "timeout", "oauth"] {
        object.remove(key);
    }
    object.values_mut().for_each(|value| rename_kept(server, value));
    Ok(object)
}

/// The name of a variable for a secret: `GITHUB_TOKEN` of that name, `GITHUB_AUTHORIZATION` of a header.
fn variable(server: &str, key: &str) -> String {
    let letters = |text: &str| -> String {
        let upper = text.to_ascii_uppercase();
        upper.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let key = letters(key);
    if key.contains('_')
        && key.starts_with(|first: char| first.is_ascii_uppercase())
        && !key.starts_with("ARGS_")
    {
        key
    } else {
        format!("{}_{key}", letters(server))
    }
}

/// Replaces `${secret:NAME}` by a variable of that name.
fn rename_kept(server: &str, value: &mut Value) {
    match value {
        Value::String(text) => {
            let opening = format!("${{{SECRET}");
            let mut parts = text.split(&opening);
            let mut renamed = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let (name, rest) = part.split_once('}').unwrap_or((part, ""));
                renamed.push_str(&format!("${{{}}}{rest}", variable(server, name)));
            }
            *text = renamed;
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_kept(server, item)),
        Value::Object(members) => members.values_mut().for_each(|member| rename_kept(server, member)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(parameters: Value, expected: Value) {
        let given = without_secrets("hub", parameters.as_object().unwrap()).unwrap();
        assert_eq!(Value::Object(given), expected);
    }

    #[test]
    fn secrets_become_variables() {
        check(
            json!({"command": "hub", "args": ["--token", "abcdef123"], "env": {"HUB_API_KEY": "s3cret", "LEVEL": "ERROR"}}),
            json!({"command": "hub", "args": ["--token", "${HUB_ARGS_1}"],
                   "env": {"HUB_API_KEY": "${HUB_API_KEY}", "LEVEL": "ERROR"}}),
        );
        check(
            json!({"url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer abcdefgh1234"}}),
            json!({"url": "https://hub.example/mcp", "headers": {"Authorization": "Bearer ${HUB_AUTHORIZATION}"}}),
        );
        check(
            json!({"command": "hub", "env": {"A": "${HOME}/x", "B": "${secret:hub.env.token}"}}),
            json!({"command": "hub", "env": {"A": "${HOME}/x", "B": "${HUB_ENV_TOKEN}"}}),
        );
    }

    #[test]
    fn different_secrets_have_different_variables() {
        let parameters = json!({"url": "https://a:first@hub.example/mcp?token=second"});
        let given = without_secrets("hub", parameters.as_object().unwrap()).unwrap();
        let url = given["url"].as_str().unwrap();
        assert!(url.contains("${HUB_URL}") && url.contains("${HUB_URL_2}"), "{url}");
    }
}
