//! Installations for a session: what is asked for, and the decision about each requirement.

use serde::Deserialize as _;
use serde::de::{Deserializer, Error as _};
use serde_json::{Value, json};

use super::error::InstallError;
use super::registrar::{AskedApprover, permit};
use crate::approval::{Action, Gate, OpenCall, Target};

/// The packages that a caller wants to install: one text, or a list of texts.
pub(crate) fn packages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let refusal = || D::Error::custom(format!("expected a string or a list of strings, not {value}"));
    match &value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(refusal)).collect()
        }
        _ => Err(refusal()),
    }
}

/// Asks the gate about each requirement; about several together.
///
/// # Errors
/// One is not permitted: nothing must be installed then.
pub(super) async fn permit_all(
    gate: &Gate,
    requirements: &[String],
    asked: AskedApprover<'_>,
) -> Result<Vec<OpenCall>, InstallError> {
    let AskedApprover { approver, chosen_by } = asked;
    let action = |requirement: &String| {
        Action::ours("install_package", [("package_name", json!(requirement))], Target::Host)
    };
    if let [requirement] = requirements {
        return Ok(vec![permit(gate, action(requirement), approver, chosen_by).await?]);
    }
    let title = format!("Install {} packages", requirements.len());
    let actions = requirements.iter().map(action).collect();
    let decided = gate.decide_together(&title, actions, approver, chosen_by).await;
    let mut on_record = Vec::new();
    let mut refused = None;
    for (requirement, decision) in requirements.iter().zip(decided) {
        let decision = match decision {
            Ok((permit, call)) => gate.used_at_once(permit, call, approver).await,
            Err(denied) => Err(denied),
        };
        match decision {
            Ok(call) => on_record.push(call),
            Err(denied) => refused = refused.or(Some((requirement, denied))),
        }
    }
    let Some((package, denied)) = refused else { return Ok(on_record) };
    for call in on_record {
        call.error("not installed, since a package beside it was denied");
    }
    Err(InstallError::OneDenied { package: package.clone(), denied })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_and_a_list_of_texts_are_packages() {
        let read = |value: Value| packages(value).map_err(|error| error.to_string());
        assert_eq!(read(json!("a b")), Ok(vec!["a b".to_owned()]));
        assert_eq!(read(json!(["a", "b"])), Ok(vec!["a".to_owned(), "b".to_owned()]));
        for wrong in [json!(5), json!(["a", 5]), json!({"a": 1})] {
            assert!(read(wrong.clone()).unwrap_err().contains("a list of strings"), "{wrong}");
        }
    }
}
