//! The modules for resources and prompts: how they read, and what they do in a real Python.

use std::fs;

use ipybox::codegen::{
    Offers, Options, Package, Prompt, PromptArgument, ResourceTemplate, RunForm, Server, Tool,
    generate_with_offers,
};
use serde_json::json;

use crate::support::{RUNTIME, fixtures, python, taking, text, written};

fn offering(offers: &Offers, tools: &[&str], form: RunForm) -> Package {
    let server = Server { name: "demo".to_owned(), description: None };
    let tools: Vec<Tool> =
        tools.iter().map(|name| taking(name, json!({"type": "object", "properties": {}}))).collect();
    generate_with_offers(&server, &tools, offers, Options::default().form(form))
}

fn template(name: &str, uri_template: &str, description: &str) -> ResourceTemplate {
    let (name, uri_template) = (name.to_owned(), uri_template.to_owned());
    let description = (!description.is_empty()).then(|| description.to_owned());
    ResourceTemplate { uri_template, name, description, ..ResourceTemplate::default() }
}

fn prompt(name: &str, description: &str, arguments: &[(&str, &str, bool)]) -> Prompt {
    let description = (!description.is_empty()).then(|| description.to_owned());
    let arguments = arguments.iter().map(|(name, description, is_required)| PromptArgument {
        name: (*name).to_owned(),
        description: (!description.is_empty()).then(|| (*description).to_owned()),
        is_required: *is_required,
    });
    Prompt { name: name.to_owned(), description, arguments: arguments.collect(), ..Prompt::default() }
}

fn resources(templates: Vec<ResourceTemplate>) -> Offers {
    Offers { resources: Some(templates), prompts: None }
}

#[test]
fn resources_are_functions() {
    let offers = resources(vec![
        template(
            "Repository Contents",
            "repo://{owner}/{repo}{/path*}{?ref}",
            "Reads a file.\n\nAny of them.",
        ),
        template("Bad", "x://{", ""),
    ]);
    let package = offering(&offers, &["ping"], RunForm::Sync);
    let [module] = package.offers.as_slice() else { panic!("{:?}", package.offers) };
    assert_eq!(module.functions, ["repository_contents"]);
    assert_eq!(module.degraded[0].to_string(), "Bad: its URI template has no function: a `{` has no `}`");
    insta::assert_snapshot!(text(&package, "resources.py"), @"");
    assert!(text(&package, "__init__.py").contains("\nresources: the server's resources, 1 as functions\n"));
    assert!(text(&package, "__init__.py").ends_with("ToolPackage.describe(__name__, \"resources\")\n"));
}

#[test]
fn prompts_are_functions() {
    let arguments = [("style", "", false), ("class", "Which class", true)];
    let offers =
        Offers { resources: None, prompts: Some(vec![prompt("code-review", "Reviews code.", &arguments)]) };
    let package = offering(&offers, &[], RunForm::Async);
    insta::assert_snapshot!(text(&package, "prompts.py"), @"");
}

#[test]
fn a_tools_module_keeps_its_name() {
    let offers = Offers { resources: Some(Vec::new()), prompts: Some(Vec::new()) };
    let package = offering(&offers, &["Resources", "resources_1", "prompts"], RunForm::Sync);
    let names: Vec<_> = package.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["resources", "resources_1", "prompts"]);
    let names: Vec<_> = package.offers.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["resources_2", "prompts_1"]);
    let words = "This module is called `resources_2`, since a tool of the server has the module `resources`.";
    assert!(text(&package, "resources_2.py").contains(words));
}

#[test]
fn a_server_without_them_has_no_such_modules() {
    let package = offering(&Offers::default(), &["ping"], RunForm::Sync);
    assert!(package.offers.is_empty());
    assert!(package.files.iter().all(|file| file.path != "resources.py" && file.path != "prompts.py"));
}

/// Texts that want to leave the literal that they are in.
const HOSTILE: [&str; 8] = [
    "\"\"\"\nraise SystemExit(3)\n\"\"\"",
    "\\\"\"\"\nraise SystemExit(3)",
    "x\"); raise SystemExit(3); (\"",
    "x}\", raise SystemExit(3)",
    "\r\nraise SystemExit(3)\u{2028}raise SystemExit(3)\u{0}",
    "\\",
    "\"",
    "'''\\N{BULLET}",
];

#[test]
fn offers_work_in_python_whatever_they_are_called() {
    let names = [
        "list",
        "read",
        "templates",
        "get",
        "list_async",
        "str",
        "builtins",
        "annotations",
        "a",
        "a_async",
        "a",
        "import",
        "self",
        "__getattr__",
        "_RESOURCES",
        "CLIENT",
        "Mapping",
        "",
        "é",
        "describe",
    ];
    let all = names.iter().chain(&HOSTILE);
    let templates =
        all.clone().map(|name| template(name, "t://{name}{?list,str,CLIENT,builtins,_x,self,x*}", name));
    let hostile = HOSTILE.iter().map(|uri| template("uri", uri, ""));
    let arguments: Vec<_> =
        names.iter().chain(&HOSTILE).map(|name| (*name, *name, name.len() % 2 == 0)).collect();
    let prompts = all.clone().map(|name| prompt(name, name, &arguments));
    let offers =
        Offers { resources: Some(templates.chain(hostile).collect()), prompts: Some(prompts.collect()) };
    for form in [RunForm::Sync, RunForm::Async] {
        let package = offering(&offers, &["ping"], form);
        let root = written(&format!("offers-{form:?}"), &package);
        let functions: Vec<_> = package.offers.iter().map(|module| &module.functions).collect();
        let input = json!({"functions": functions, "is_async": form == RunForm::Async}).to_string();
        let program = fs::read_to_string(fixtures().join("offers.py")).unwrap();
        python(&program, &["modules", root.to_str().unwrap(), RUNTIME], &input);
    }
}

#[test]
fn templates_expand_as_in_the_rfc() {
    let program = fs::read_to_string(fixtures().join("offers.py")).unwrap();
    python(&program, &["templates", RUNTIME, RUNTIME], "");
}
