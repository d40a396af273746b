//! Whether ipybox, or the kernel's Python, comes from a place where code can write: what such code left would run without a
//! sandbox.

use std::path::Path;

use crate::config::Settings;
use crate::kernels::sandbox::ExposedPlaces;
use crate::kernels::sandbox::check::{CheckFinding, CheckRemedy};

/// The directory of npm's packages.
const NODE_MODULES: &str = "node_modules";

/// Findings about programs in `workspace`, and in the places that code in sandboxes of earlier sessions could write.
pub(super) fn examine(settings: &Settings, workspace: &Path, exposed: &ExposedPlaces) -> Vec<CheckFinding> {
    let own = std::env::current_exe().ok().and_then(|program| own_program(&program, workspace, exposed));
    let python = settings.kernel.python.as_deref().filter(|_| settings.sandbox.is_none());
    own.into_iter().chain(python.and_then(|python| python_of_code(python, exposed))).collect()
}

fn own_program(program: &Path, workspace: &Path, exposed: &ExposedPlaces) -> Option<CheckFinding> {
    let below = program.strip_prefix(workspace).ok();
    let is_package = below.is_some_and(|below| below.iter().any(|name| name == NODE_MODULES));
    (is_package || exposed.on_the_way(program).is_some()).then(|| {
        CheckFinding::warning(
            "own-program",
            format!("`{}`, where code in the workspace can write", program.display()),
            "code that replaces it runs without a sandbox at the next start",
            CheckRemedy::Advice(
                "start ipybox from outside: by `uvx ipybox-rs`, after `npm install -g ipybox`, or by `sh -c 'cd / && exec npx \
                 -y ipybox \"$@\"' ipybox --workspace DIR`"
                    .to_owned(),
            ),
        )
    })
}

fn python_of_code(python: &Path, exposed: &ExposedPlaces) -> Option<CheckFinding> {
    let place = exposed.leads_to(python)?;
    Some(CheckFinding::warning(
        "earlier-sandbox",
        format!("code in the sandbox of an earlier session could write `{}`", place.display()),
        "what it left in this Python runs without a sandbox",
        CheckRemedy::Advice("make the environment anew, or use `--sandbox`".to_owned()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_the_workspace_is_reported_as_ipyboxs_own_program() {
        let check = |program: &str, expected: bool| {
            let found = own_program(Path::new(program), Path::new("/w"), &ExposedPlaces::default());
            assert_eq!(found.is_some(), expected, "{program}");
        };
        check("/w/node_modules/@ipybox-rs/linux-x64/bin/ipybox", true);
        check("/w/packages/a/node_modules/@ipybox-rs/linux-x64/bin/ipybox", true);
        check("/w/target/debug/ipybox", false);
        check("/home/me/.npm/_npx/3f/node_modules/@ipybox-rs/linux-x64/bin/ipybox", false);
    }

    #[test]
    fn programs_that_code_could_write_are_reported() {
        let exposed = ExposedPlaces::everywhere();
        assert!(own_program(Path::new("/usr/bin/ipybox"), Path::new("/w"), &exposed).is_some());
        assert!(python_of_code(Path::new("/w/.venv"), &exposed).is_some());
        assert!(python_of_code(Path::new("/w/.venv"), &ExposedPlaces::default()).is_none());
    }
}
