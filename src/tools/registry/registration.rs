//! The result of a registration, for the caller and as texts for a model.

/// The result of a registration.
pub(crate) struct Registration {
    /// The names of the generated modules, one for each tool, in the server's order.
    pub(crate) modules: Vec<String>,
    /// The way to call them if they are few, else their names, as text for a model.
    pub(crate) calls: String,
    /// The number of templates and prompts that got functions, with the modules to import; empty if there are none.
    pub(crate) others: String,
    /// Warnings about the generated code.
    pub(crate) warnings: Vec<String>,
    /// Parts of the parameters, or tools, that were left out or reinterpreted.
    pub(crate) notes: Vec<String>,
    /// Changes of the tools since the last registration of the name.
    pub(crate) drift: Vec<String>,
}

impl Registration {
    /// `name`, if its package has other tools than it had before.
    pub(crate) fn changed<'a>(&self, name: &'a str) -> Option<&'a str> {
        (!self.drift.is_empty()).then_some(name)
    }

    /// Logs the warnings about the server named `name`, and the changes of its tools.
    pub(crate) fn log(&self, name: &str) {
        for warning in &self.warnings {
            tracing::warn!(server = %name, "{warning}");
        }
        for change in &self.drift {
            tracing::info!(server = %name, "since the last registration: {change}");
        }
    }

    /// Texts for a model: how the tools of `name` are called or found, then notes about them.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let Self { modules, calls, others, notes, drift, .. } = self;
        let mut text = match (modules.as_slice(), others.as_str()) {
            ([], "") => format!("The server has no tools: `mcptools.{name}` is empty."),
            ([], _) => "The server has no tools.".to_owned(),
            _ => calls.clone(),
        };
        if !others.is_empty() {
            text = format!("{text}\n{others}");
        }
        let mut texts = vec![text];
        if !notes.is_empty() {
            texts.push(notes.join("\n"));
        }
        if !drift.is_empty() {
            let drift = drift.join("\n");
            let advice = "Import again what cells have imported from the package: names from before are the old modules.";
            texts.push(format!("Since the last registration:\n{drift}\n{advice}"));
        }
        texts
    }
}
