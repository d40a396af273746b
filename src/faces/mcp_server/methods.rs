//! The parameters of the methods that are served, in words: for requests whose parameters have another form.

/// The parameters that a request with this method has.
pub(super) fn params_of(method: &str) -> Option<&'static str> {
    Some(match method {
        "tools/call" => {
            "an object with a string `name` and an object `arguments`, and may have an object `inputResponses` and a string \
             `requestState`"
        }
        "resources/list" | "resources/templates/list" | "skills/list" => {
            "an object that may have a string `cursor`"
        }
        "resources/read" | "skills/get" => "an object with a string `uri`",
        "tasks/get" | "tasks/cancel" => "an object with a string `taskId`",
        "tasks/update" => "an object with a string `taskId` and an object `inputResponses`",
        _ => return None,
    })
}
