//! The modules for resources and prompts: how they read, and what they do in a real Python.

use std::collections::HashSet;
use std::fs;

use ipybox_codegen::{
    Options, Package, Prompt, PromptArgument, ResourceTemplate, ResourcesAndPrompts, RunForm, Server, Tool,
    generate_all,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use crate::support::{RUNTIME, fixtures, python, taking, text, written};

fn package(others: &ResourcesAndPrompts, tools: &[&str], form: RunForm) -> Package {
    let server = Server { name: "demo".to_owned(), description: None };
    let tools: Vec<Tool> =
        tools.iter().map(|name| taking(name, json!({"type": "object", "properties": {}}))).collect();
    generate_all(&server, &tools, others, Options::default().form(form))
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

fn resources(templates: Vec<ResourceTemplate>) -> ResourcesAndPrompts {
    ResourcesAndPrompts { resources: Some(templates), prompts: None }
}

#[test]
fn resources_are_functions() {
    let others = resources(vec![
        template(
            "Repository Contents",
            "repo://{owner}/{repo}{/path*}{?ref}",
            "Reads a file.\n\nAny of them.",
        ),
        template("Bad", "x://{", ""),
    ]);
    let package = package(&others, &["ping"], RunForm::Sync);
    let [module] = package.others.as_slice() else { panic!("{:?}", package.others) };
    assert_eq!(module.functions, ["repository_contents"]);
    assert_eq!(module.degraded[0].to_string(), "Bad: its URI template has no function: a `{` has no `}`");
    insta::assert_snapshot!(text(&package, "resources.py"), @r####"
    """Resources of the MCP server `demo`.

    list() -> list[ResourceLink]: List the server's resources. Each can be read by its `read()`.
    read(uri: str) -> ToolResult: Read the resource at a URI.
    templates() -> list[ResourceTemplate]: List the templates that the server has now.
    repository_contents(owner: str, repo: str, path: str | Sequence[str] | Mapping[str, str], ref: str | None = None) -> ToolResult: Reads a file.

    Each has a second form, which is a coroutine: `list_async`.
    """

    from __future__ import annotations

    import builtins
    from collections.abc import Mapping, Sequence

    from ipybox_modules import ToolModule
    from ipybox_resources import ResourceTemplate, ServerResources
    from ipybox_results import ResourceLink, ToolResult

    from . import CLIENT

    _RESOURCES = ServerResources(CLIENT)


    def list() -> builtins.list[ResourceLink]:
        """List the server's resources. Each can be read by its `read()`."""
        return _RESOURCES.list_sync()


    async def list_async() -> builtins.list[ResourceLink]:
        """Do the same as `list`, asynchronously."""
        return await _RESOURCES.list()


    def read(uri: str) -> ToolResult:
        """Read the resource at a URI."""
        return _RESOURCES.read_sync(uri)


    async def read_async(uri: str) -> ToolResult:
        """Do the same as `read`, asynchronously."""
        return await _RESOURCES.read(uri)


    def templates() -> builtins.list[ResourceTemplate]:
        """List the templates that the server has now."""
        return _RESOURCES.templates_sync()


    async def templates_async() -> builtins.list[ResourceTemplate]:
        """Do the same as `templates`, asynchronously."""
        return await _RESOURCES.templates()


    def repository_contents(owner: str, repo: str, path: str | Sequence[str] | Mapping[str, str], ref: str | None = None) -> ToolResult:
        """Reads a file.

        Any of them.

        Its URI is `repo://{owner}/{repo}{/path*}{?ref}`.
        """
        return _RESOURCES.read_template_sync("repo://{owner}/{repo}{/path*}{?ref}", {"owner": owner, "repo": repo, "path": path, "ref": ref})


    async def repository_contents_async(owner: str, repo: str, path: str | Sequence[str] | Mapping[str, str], ref: str | None = None) -> ToolResult:
        """Do the same as `repository_contents`, asynchronously."""
        return await _RESOURCES.read_template("repo://{owner}/{repo}{/path*}{?ref}", {"owner": owner, "repo": repo, "path": path, "ref": ref})


    ToolModule.describe(__name__)
    "####);
    assert!(text(&package, "__init__.py").contains("\nresources: the server's resources, 1 as functions\n"));
    assert!(text(&package, "__init__.py").ends_with("ToolPackage.describe(__name__, \"resources\")\n"));
}

#[test]
fn prompts_are_functions() {
    let arguments = [("style", "", false), ("class", "Which class", true)];
    let others = ResourcesAndPrompts {
        resources: None,
        prompts: Some(vec![prompt("code-review", "Reviews code.", &arguments)]),
    };
    let package = package(&others, &[], RunForm::Async);
    insta::assert_snapshot!(text(&package, "prompts.py"), @r####"
    """Prompts of the MCP server `demo`.

    list() -> list[Prompt]: List the prompts that the server has now, with their arguments.
    get(name: str, /, **arguments: str | None) -> list[PromptMessage]: Get the messages of a prompt.
    code_review(class_: str, style: str | None = None) -> list[PromptMessage]: Reviews code.

    Each has a second form, which waits: `list_sync`.
    """

    from __future__ import annotations

    import builtins

    from ipybox_modules import ToolModule
    from ipybox_resources import Prompt, PromptMessage, ServerPrompts

    from . import CLIENT

    _PROMPTS = ServerPrompts(CLIENT)


    async def list() -> builtins.list[Prompt]:
        """List the prompts that the server has now, with their arguments."""
        return await _PROMPTS.list()


    def list_sync() -> builtins.list[Prompt]:
        """Do the same as `list`, and wait for it."""
        return _PROMPTS.list_sync()


    async def get(name: str, /, **arguments: str | None) -> builtins.list[PromptMessage]:
        """Get the messages of a prompt."""
        return await _PROMPTS.get(name, arguments)


    def get_sync(name: str, /, **arguments: str | None) -> builtins.list[PromptMessage]:
        """Do the same as `get`, and wait for it."""
        return _PROMPTS.get_sync(name, arguments)


    async def code_review(class_: str, style: str | None = None) -> builtins.list[PromptMessage]:
        """Reviews code.

        class_: Which class
        """
        return await _PROMPTS.get("code-review", {"class": class_, "style": style})


    def code_review_sync(class_: str, style: str | None = None) -> builtins.list[PromptMessage]:
        """Do the same as `code_review`, and wait for it."""
        return _PROMPTS.get_sync("code-review", {"class": class_, "style": style})


    ToolModule.describe(__name__)
    "####);
}

#[test]
fn templates_and_prompts_too_large_for_a_function_are_reported() {
    let arguments = vec![("a", "", false); 201];
    let long = format!("x://{}", "x".repeat(5_000));
    let others = ResourcesAndPrompts {
        resources: Some(vec![template("long", &long, "")]),
        prompts: Some(vec![prompt("many", "", &arguments), prompt("few", "", &arguments[..3])]),
    };
    let package = package(&others, &[], RunForm::Sync);
    let [resources, prompts] = package.others.as_slice() else { panic!("{:?}", package.others) };
    assert!(resources.functions.is_empty() && resources.degraded[0].what.ends_with("4096 bytes"));
    assert!(prompts.functions == ["few"] && prompts.degraded[0].path == "many");
    assert!(text(&package, "prompts.py").contains("def few(a: str | None = None) -> "));
}

#[test]
fn a_tools_module_keeps_its_name() {
    let others = ResourcesAndPrompts { resources: Some(Vec::new()), prompts: Some(Vec::new()) };
    let package = package(&others, &["Resources", "resources_1", "prompts"], RunForm::Sync);
    let names: Vec<_> = package.modules.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["resources", "resources_1", "prompts"]);
    let names: Vec<_> = package.others.iter().map(|module| module.name.as_str()).collect();
    assert_eq!(names, ["resources_2", "prompts_1"]);
    let words = "This module is called `resources_2`, since a tool of the server has the module `resources`.";
    assert!(text(&package, "resources_2.py").contains(words));
}

#[test]
fn a_server_without_them_has_no_such_modules() {
    let package = package(&ResourcesAndPrompts::default(), &["ping"], RunForm::Sync);
    assert!(package.others.is_empty());
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
fn functions_work_in_python_whatever_they_are_called() {
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
    let others = ResourcesAndPrompts {
        resources: Some(templates.chain(hostile).collect()),
        prompts: Some(prompts.collect()),
    };
    for form in [RunForm::Sync, RunForm::Async] {
        let package = package(&others, &["ping"], form);
        let root = written(&package);
        let functions: Vec<_> = package.others.iter().map(|module| &module.functions).collect();
        let input = json!({"functions": functions, "is_async": form == RunForm::Async}).to_string();
        let program = fs::read_to_string(fixtures().join("resources.py")).unwrap();
        python(&program, &["modules", root.path().to_str().unwrap(), RUNTIME], &input);
    }
}

#[test]
fn templates_with_functions_are_those_that_expand() {
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let part = prop_oneof![
        "[{}+#./;?&,:*a0 é%=-]{0,6}",
        r"\{[+#./;?&]?[a-c](\*|:[0-9]{1,5})?(,[a-c.%_-]{1,3}\*?){0,2}\}"
    ];
    let texts = prop::collection::vec(part, 0..3).prop_map(|parts| parts.concat());
    let texts: Vec<String> = (0..3_000).map(|_| texts.new_tree(&mut runner).unwrap().current()).collect();
    let templates = texts.iter().enumerate().map(|(number, text)| template(&number.to_string(), text, ""));
    let package = package(&resources(templates.collect()), &[], RunForm::Sync);
    let module = &package.others[0];
    let broken: HashSet<usize> = module.degraded.iter().map(|spot| spot.path.parse().unwrap()).collect();
    assert!(broken.len() > 300 && module.functions.len() > 300, "{}", broken.len());
    let cases: Vec<_> =
        texts.iter().enumerate().map(|(number, text)| (text, broken.contains(&number))).collect();
    let program = fs::read_to_string(fixtures().join("resources.py")).unwrap();
    python(&program, &["agreement", RUNTIME, RUNTIME], &json!(cases).to_string());
}

#[test]
fn templates_expand_as_in_the_rfc() {
    let program = fs::read_to_string(fixtures().join("resources.py")).unwrap();
    python(&program, &["templates", RUNTIME, RUNTIME], "");
}
