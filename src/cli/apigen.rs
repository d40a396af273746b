//! `ipybox apigen`: prints the names of the generated modules on stdout, warnings on stderr.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Context as _;
use ipybox::codegen::{Options, RunForm};
use ipybox::env::Variables;
use ipybox::{ApigenSource, apigen};
use serde_json::Value;

use super::args::ApigenArgs;
use super::{print_message, single_threaded};

pub(super) fn run(args: ApigenArgs) -> anyhow::Result<()> {
    let source = match (args.server_params, args.tools) {
        (Some(parameters), _) => ApigenSource::Server(
            serde_json::from_str(&parameters).context("read `--server-params`: it is no JSON object")?,
        ),
        (None, Some(file)) => ApigenSource::ToolsFile(file),
        (None, None) => unreachable!("clap requires one of the two"),
    };
    let form = if args.is_async { RunForm::Async } else { RunForm::Sync };
    let mut results: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (tool, file) in args.infer {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("read the result of `{tool}` in `{}`", file.display()))?;
        results.entry(tool).or_default().push(text.into());
    }
    let directory = std::env::current_dir().context("find the current directory")?;
    let variables = Variables::load(&directory);
    let runtime = single_threaded()?;
    let options = Options::default().form(form);
    let generating = apigen(&args.server_name, &args.root_dir, source, &results, options, variables);
    let report = runtime.block_on(generating)?;
    for warning in &report.warnings {
        print_message(&format!("warning: {warning}"));
    }
    let mut stdout = super::stdout();
    for module in &report.modules {
        writeln!(stdout, "{module}").context("print the names of the modules")?;
    }
    Ok(())
}
