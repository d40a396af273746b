use serde_json::json;

use super::objects::{ClaimObject, ClaimState};
use super::*;

fn settings(pool: &str, namespace: Option<&str>) -> ClaimSettings {
    ClaimSettings {
        pool: pool.to_owned(),
        namespace: namespace.map(str::to_owned),
        lease: Duration::from_secs(300),
        patience: Duration::from_secs(600),
        owner: None,
        labels: BTreeMap::new(),
    }
}

#[test]
fn names_that_kubernetes_cannot_have_are_refused() {
    for (pool, namespace) in [("a", None), ("my-pool.v1", Some("team-1"))] {
        SandboxClaims::new(settings(pool, namespace)).unwrap();
    }
    for (pool, namespace, expected) in [
        ("", None, "`` as the name of a warm pool"),
        ("a/../b", None, "`a/../b` as the name of a warm pool"),
        ("Pool", None, "`Pool`"),
        ("-a", None, "`-a`"),
        ("a", Some("b?c"), "`b?c` as the name of a namespace"),
    ] {
        let error = SandboxClaims::new(settings(pool, namespace)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn state(status: &Value) -> Result<ClaimState, ClaimError> {
    let claim = json!({"metadata": {"name": "a", "resourceVersion": "7"}, "status": status});
    serde_json::from_value::<ClaimObject>(claim).unwrap().state()
}

#[test]
fn a_claim_is_ready_with_its_condition_and_an_address() {
    let ready =
        json!([{"type": "Finished", "status": "False"}, {"type": "Ready", "status": "True", "reason": "a"}]);
    let bound = json!({"conditions": ready, "sandbox": {"name": "s", "podIPs": ["10.0.0.7", "fd00::7"]}});
    let Ok(ClaimState::Ready(bound)) = state(&bound) else { panic!() };
    assert_eq!((bound.sandbox.as_str(), bound.address.to_string().as_str()), ("s", "10.0.0.7"));
    let without = json!({"conditions": ready, "sandbox": {"name": "s"}});
    assert!(matches!(state(&without), Ok(ClaimState::Waiting(Some(_)))));
    let waiting =
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": "A", "message": "b"}]});
    assert!(matches!(state(&waiting), Ok(ClaimState::Waiting(Some(words))) if words == "A: b"));
    // Go writes a structure that is empty.
    assert!(matches!(state(&json!({"sandbox": {}})), Ok(ClaimState::Waiting(None))));
    assert!(matches!(state(&json!({})), Ok(ClaimState::Waiting(None))));
    let never = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "TemplateNotFound"}]});
    assert!(matches!(state(&never), Err(ClaimError::Rejected { .. })));
}

#[test]
fn a_missing_pool_is_answered_with_those_that_there_are() {
    let hint = |known| ClaimError::no_such_pool("p", "n", known).to_string();
    assert!(hint(None).contains("`--kernel-pool`"));
    assert!(hint(Some(Vec::new())).contains("no warm pools at all"));
    assert!(hint(Some(vec!["q".to_owned()])).ends_with("it has `q`"));
}
