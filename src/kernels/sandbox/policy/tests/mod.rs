//! Policies as users write them, and what becomes of them.

mod documents;
mod sessions;

/// A document with these entries beside the ones that have to be there.
fn document(network: &str, filesystem: &str, top: &str) -> String {
    let network = joined(r#""allowedDomains": [], "deniedDomains": []"#, network);
    let filesystem = joined(r#""denyRead": [], "allowWrite": ["."], "denyWrite": []"#, filesystem);
    format!("{{{}}}", joined(&format!(r#""network": {{{network}}}, "filesystem": {{{filesystem}}}"#), top))
}

fn joined(first: &str, second: &str) -> String {
    if second.is_empty() { first.to_owned() } else { format!("{first}, {second}") }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
