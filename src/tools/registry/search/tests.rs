//! The search as a whole.

use serde_json::{Value, json};

use super::*;
use crate::tools::codegen::Tool;

fn tool(name: &str, description: &str, properties: Value) -> Tool {
    let schema = json!({"type": "object", "properties": properties});
    serde_json::from_value(json!({"name": name, "description": description, "input_schema": schema})).unwrap()
}

fn index() -> Index {
    let path = json!({"path": {"type": "string"}});
    let files = [
        tool("read_file", "Reads a text file. Fails for directories.", path.clone()),
        tool(
            "writeFile",
            "Writes text to a file.",
            json!({"path": {"type": "string"}, "mode": {"enum": ["append", "replace"]}}),
        ),
        tool("list_directory", "Lists the entries of a directory.", path),
    ];
    let git = [
        tool(
            "git_log",
            "Shows the commits of a branch.",
            json!({"max_count": {"type": "integer", "default": 10}}),
        ),
        tool("git_commit", "Records changes in the repository.", json!({"message": {"type": "string"}})),
    ];
    Index::new([("files", &files[..]), ("git", &git[..])])
}

fn found(query: &SearchQuery) -> String {
    index().search(query).unwrap()
}

fn names(words: &str) -> SearchQuery {
    SearchQuery { detail: SearchDetail::Names, ..SearchQuery::new(words) }
}

#[track_caller]
fn check_first(words: &str, expected: &str) {
    let found = found(&names(words));
    assert!(found.starts_with(&format!("{expected}:")), "{words}: {found}");
}

#[test]
fn tools_are_found_by_all_that_is_said_of_them() {
    check_first("read file", "files.read_file");
    check_first("ReadFiles", "files.read_file");
    check_first("write a file", "files.writefile");
    check_first("append", "files.writefile");
    check_first("show what was committed on the branch", "git.git_log");
    check_first("commits of a branch", "git.git_log");
    check_first("git commit", "git.git_commit");
    check_first("max count", "git.git_log");
    check_first("listing directories", "files.list_directory");
}

#[test]
fn an_answer_has_as_much_as_was_asked_for() {
    insta::assert_snapshot!(found(&SearchQuery::new("write file")), @r#"
    from mcptools import files
    files.writefile.run(path: str = None, mode: "append" | "replace" = None) -> ToolResult  # Writes text to a file.
    "#);
    insta::assert_snapshot!(found(&names("write file")), @r"
    files.writefile: Writes text to a file.
    ");
    let query =
        SearchQuery { limit: 1, detail: SearchDetail::Module, ..SearchQuery::new("max count of commits") };
    insta::assert_snapshot!(found(&query), @r"
    from mcptools import git
    git.git_log: Shows the commits of a branch.

    run(max_count: int = 10) -> ToolResult
    ");
}

#[test]
fn one_server_can_be_searched() {
    let of = |server: &str| SearchQuery { server: Some(server.to_owned()), ..names("file repository") };
    assert!(found(&of("git")).starts_with("git.git_commit"), "{}", found(&of("git")));
    let error = index().search(&of("gitt")).unwrap_err().to_string();
    assert_eq!(error, "search tools: no MCP server is registered as `gitt`; did you mean `git`?");
}

#[test]
fn a_query_without_words_says_what_there_is() {
    insta::assert_snapshot!(found(&names("")), @r#"
    5 tools: files 3, git 2
    `search("what to do")` finds some of them
    "#);
    assert_eq!(found(&names("")), found(&names("how do I use these tools?")));
    assert!(Index::default().search(&names("")).unwrap().starts_with("no MCP server is registered"));
    assert!(Index::default().search(&names("x")).unwrap().starts_with("no MCP server is registered"));
}

#[test]
fn the_nearest_names_are_shown_if_nothing_fits() {
    insta::assert_snapshot!(found(&names("direktory")), @r"
    none of the 5 registered tools fits `direktory`; the nearest:
    files.list_directory: Lists the entries of a directory.
    files.read_file: Reads a text file. Fails for directories.
    ");
    insta::assert_snapshot!(found(&names("repo")), @r"
    none of the 5 registered tools fits `repo`; the nearest:
    git.git_commit: Records changes in the repository.
    ");
    insta::assert_snapshot!(found(&names("weather\u{1b}[2J")), @"none of the 5 registered tools fits `weather`; try other words, or an empty query to see what there is");
}

#[test]
fn queries_have_bounds() {
    let check = |query: SearchQuery, words: &str| {
        let error = index().search(&query).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    check(SearchQuery::new("x".repeat(1025)), "more than 1024 bytes");
    check(SearchQuery { limit: 0, ..SearchQuery::new("file") }, "`limit` must be 1 to 50, not 0");
    check(SearchQuery { limit: 51, ..SearchQuery::new("file") }, "not 51");
}

#[test]
fn answers_are_bounded_whatever_a_server_says() {
    let long = |number: usize| {
        let properties =
            (0..200).map(|at| (format!("a_long_name_of_a_parameter_{at}"), json!({"type": "string"})));
        tool(&format!("tool_{number}_{}", "x".repeat(200)), &"word ".repeat(9000), properties.collect())
    };
    let tools: Vec<Tool> = (0..300).map(long).collect();
    let index = Index::new([("s", tools.as_slice())]);
    for detail in [SearchDetail::Names, SearchDetail::Signature, SearchDetail::Module] {
        let query = |limit| SearchQuery { detail, limit, ..SearchQuery::new("word") };
        for (limit, most) in [(1, 2_000), (8, 2_000), (50, 12_000)] {
            let answer = index.search(&query(limit)).unwrap();
            assert!(answer.contains("tool_0") && answer.len() < most, "{detail:?}: {}", answer.len());
        }
    }
    assert!(calls_of("s", &tools[..20]).len() < 6_000);
    assert!(calls_of("s", &tools).len() < 600);
}

#[test]
fn long_parameters_are_counted() {
    let properties = (0..40).map(|at| (format!("parameter_{at}"), json!({"type": "string"})));
    let tools = [tool("t", "Does it.", properties.collect())];
    let answer = Index::new([("s", &tools[..])]).search(&SearchQuery::new("does it t")).unwrap();
    assert!(
        answer.contains("parameter_9: str = None, …") && answer.contains(" more) -> ToolResult"),
        "{answer}"
    );
}

#[test]
fn a_registration_shows_few_tools_and_groups_many() {
    let few = [tool("read_file", "Reads a text file.", json!({"path": {"type": "string"}}))];
    insta::assert_snapshot!(calls_of("files", &few), @r"
    from mcptools import files
    files.read_file.run(path: str = None) -> ToolResult  # Reads a text file.
    A `ToolResult` is a string, with `attachments`. Where it is JSON, `ipybox_runtime.infer_result(<tool>, result)` adds `<tool>.run_parsed`, which returns a model.
    ");
    let result = json!({"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]});
    let typed = [Tool { output_schema: result.as_object().cloned(), ..few[0].clone() }];
    insta::assert_snapshot!(calls_of("files", &typed), @r"
    from mcptools import files
    files.read_file.run(path: str = None) -> Result(size: int)  # Reads a text file.
    ");
    let names = ["issue", "issues", "pull_request", "branch"].iter();
    let many = names.flat_map(|thing| {
        ["get", "list", "create", "update", "delete", "search"].map(|verb| format!("gh_{verb}_{thing}"))
    });
    let many: Vec<Tool> =
        many.chain(["gh_whoami".to_owned()]).map(|name| tool(&name, "", json!({}))).collect();
    insta::assert_snapshot!(calls_of("github", &many), @r#"
    25 tools in `mcptools.github`, by the words of their names: issue 12, branch 6, pull 6, others 1
    `from mcptools import search; search("what to do", server="github")` says how those that fit are called
    "#);
}

#[test]
fn what_a_query_cannot_have_is_refused() {
    let read = |text: &str| serde_json::from_str::<SearchQuery>(text);
    assert_eq!(read(r#"{"query": "x"}"#).unwrap(), SearchQuery::new("x"));
    for text in [
        r#"{"query": "x", "workspace": "/"}"#,
        r#"{"query": "x", "limit": -1}"#,
        r#"{"query": "x", "detail": "all"}"#,
        "{}",
    ] {
        read(text).unwrap_err();
    }
}
