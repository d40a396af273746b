//! Golden pairs: `golden/<case>.json` is a tool, `golden/<case>.py` its module. `BLESS=1` writes the second anew.

use std::{env, fs};

use ipybox_codegen::{Options, RunForm, Server, generate_with};

use crate::support::{fixtures, package, text, tool};

#[test]
fn modules_read_as_written_down() {
    let mut cases: Vec<_> =
        fs::read_dir(fixtures().join("golden")).unwrap().map(|e| e.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    cases.sort();
    assert!(!cases.is_empty());
    for case in cases {
        let listed = serde_json::from_str(&fs::read_to_string(&case).unwrap()).unwrap();
        let package = package(&[tool(&listed)]);
        let module = text(&package, &format!("{}.py", package.modules[0].name));
        let golden = case.with_extension("py");
        if env::var_os("BLESS").is_some() {
            fs::write(&golden, module).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(module == expected, "{} differs; it is now:\n{module}", golden.display());
    }
}

#[test]
fn the_package_shows_what_the_server_offers() {
    let mut listed: Vec<serde_json::Value> = Vec::new();
    for (name, description) in [
        ("search.repos", "Search for repositories. Returns at most 100 of them.\n\nMore here."),
        ("Search-Repos", "Does the same, and is called almost the same."),
        ("import", "\"\"\"quoted\"\"\" \\ \u{202e}reversed"),
        ("__init__", ""),
    ] {
        listed.push(
            serde_json::json!({"name": name, "description": description, "inputSchema": {"type": "object"}}),
        );
    }
    let tools: Vec<_> = listed.iter().map(tool).collect();
    let package = package(&tools);
    let names: Vec<_> = package.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["search_repos", "search_repos_1", "import_", "__init___"]);
    insta::assert_snapshot!(text(&package, "__init__.py"), @r#"
    """Tools of the MCP server `demo`.

    Modules, one for each tool:

    search_repos: Search for repositories.
    search_repos_1 (tool `Search-Repos`): Does the same, and is called almost the same.
    import_: ""\"quoted""\" \\ \\u202ereversed
    __init___
    """

    from ipybox_modules import ToolPackage
    from ipybox_runtime import (
        ApprovalRejectedError,
        ApprovalTimeoutError,
        ToolRunner,
        ToolRunnerError,
    )

    __all__ = ["CLIENT", "ApprovalRejectedError", "ApprovalTimeoutError", "ToolRunnerError"]

    CLIENT = ToolRunner(server_name="demo")

    ToolPackage.describe(__name__)
    "#);
}

#[test]
fn the_asynchronous_form_swaps_the_two_functions() {
    let tools = [crate::support::taking("ping", serde_json::json!({"type": "object"}))];
    let server = Server { name: "demo".to_owned(), description: None };
    let package = generate_with(&server, &tools, Options::default().form(RunForm::Async));
    let module = text(&package, "ping.py");
    assert!(
        module.contains("async def run(params: Params") && module.contains("await CLIENT.call(tool_name=")
    );
    assert!(module.contains("\ndef run_sync(params: Params"));
}
