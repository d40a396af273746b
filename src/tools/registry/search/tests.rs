//! The search as a whole.

use serde_json::{Value, json};

use super::*;
use ipybox_codegen::Tool;

fn tool(name: &str, description: &str, properties: Value) -> Tool {
    let schema = json!({"type": "object", "properties": properties});
    serde_json::from_value(json!({"name": name, "description": description, "input_schema": schema})).unwrap()
}

fn index() -> SearchIndex {
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
    SearchIndex::new([("files", &files[..]), ("git", &git[..])])
}

fn found(query: &SearchQuery) -> String {
    index().search(query).unwrap()
}

#[track_caller]
fn check_first(words: &str, expected: &str) {
    let found = found(&SearchQuery::new(words));
    let first = found.lines().nth(1).unwrap_or_default();
    assert!(first.starts_with(&format!("{expected}.run(")), "{words}: {found}");
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
    files.read_file.run(path: str = None) -> ToolResult  # Reads a text file. Fails for directories.
    files.list_directory.run(path: str = None) -> ToolResult  # Lists the entries of a directory.
    # 3 of 5 tools fit
    "#);
    let query = SearchQuery { limit: 1, ..SearchQuery::new("max count of commits") };
    insta::assert_snapshot!(found(&query), @r"
    from mcptools import git
    git.git_log: Shows the commits of a branch.

    run(max_count: int = 10) -> ToolResult
    # 2 of 5 tools fit, the best 1
    ");
}

#[test]
fn an_answer_says_what_it_left_out() {
    let last = |query: &SearchQuery| found(query).lines().last().unwrap_or_default().to_owned();
    assert_eq!(
        last(&SearchQuery::new("commits of the weather in Paris")),
        "# 2 of 5 tools fit; none has `weather`, `paris`"
    );
    let query = SearchQuery { limit: 1, ..SearchQuery::new("files") };
    assert_eq!(last(&query), "# 3 of 5 tools fit, the best 1");
    let query = SearchQuery { server: Some("files".to_owned()), ..SearchQuery::new("read commit") };
    assert_eq!(last(&query), "# 1 of 3 tools fit; none has `commit`");
    let many = (0..40).map(|number| format!("unknown{number}")).collect::<Vec<_>>().join(" ");
    let line = last(&SearchQuery::new(format!("commit {many}")));
    assert!(line.ends_with("`unknown4`, `unknown5`"), "{line}");
}

#[test]
fn requests_may_use_other_words_than_tools() {
    check_first("show a folder", "files.list_directory");
    check_first("save a document", "files.writefile");
    check_first("what happened in the past", "git.git_log");
    check_first("repo", "git.git_commit");
    // A word that is made of two is found by each of them, and by both.
    let log = [
        tool("add_worklog", "Adds an entry.", json!({})),
        tool("a", "Work of a log.", json!({})),
        tool("b", "Work of a log.", json!({})),
        tool("c", "The work, in a log.", json!({})),
        tool("todo", "x", json!({})),
    ];
    let index = SearchIndex::new([("s", &log[..])]);
    for (words, name) in
        [("log my work, add it", "add_worklog"), ("add work-log", "add_worklog"), ("to do", "todo")]
    {
        let found = index.search(&SearchQuery::new(words)).unwrap();
        assert!(found.lines().nth(1).unwrap().starts_with(&format!("s.{name}.run(")), "{words}: {found}");
    }
}

#[test]
fn one_server_can_be_searched() {
    let of =
        |server: &str| SearchQuery { server: Some(server.to_owned()), ..SearchQuery::new("file repository") };
    assert!(found(&of("git")).contains("\ngit.git_commit.run("), "{}", found(&of("git")));
    let error = index().search(&of("gitt")).unwrap_err().to_string();
    assert_eq!(error, "search tools: no MCP server is registered as `gitt`; did you mean `git`?");
}

#[test]
fn a_query_without_words_says_what_there_is() {
    insta::assert_snapshot!(found(&SearchQuery::new("")), @r#"
    5 tools: files 3, git 2
    `search("what to do")` finds some of them
    "#);
    assert_eq!(found(&SearchQuery::new("")), found(&SearchQuery::new("how do I use these tools?")));
    assert!(
        SearchIndex::default()
            .search(&SearchQuery::new(""))
            .unwrap()
            .starts_with("no MCP server is registered")
    );
    assert!(
        SearchIndex::default()
            .search(&SearchQuery::new("x"))
            .unwrap()
            .starts_with("no MCP server is registered")
    );
}

#[test]
fn the_nearest_names_are_shown_if_nothing_fits() {
    insta::assert_snapshot!(found(&SearchQuery::new("direktory")), @r"
    none of the 5 registered tools fits `direktory`; the nearest:
    files.list_directory: Lists the entries of a directory.
    files.read_file: Reads a text file. Fails for directories.
    ");
    insta::assert_snapshot!(found(&SearchQuery::new("reposit")), @r"
    none of the 5 registered tools fits `reposit`; the nearest:
    git.git_commit: Records changes in the repository.
    ");
    insta::assert_snapshot!(found(&SearchQuery::new("weather\u{1b}[2J")), @"none of the 5 registered tools fits `weather`; try other words, or an empty query to see what there is");
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
    let index = SearchIndex::new([("s", tools.as_slice())]);
    for (limit, most) in [(1, 2_000), (8, 2_000), (50, 12_000)] {
        let answer = index.search(&SearchQuery { limit, ..SearchQuery::new("word") }).unwrap();
        assert!(answer.contains("tool_0") && answer.len() < most, "{limit}: {}", answer.len());
    }
    assert!(calls_of("s", &tools[..20]).len() < 6_000);
    assert!(calls_of("s", &tools).len() < 600);
}

#[test]
fn long_parameters_are_counted() {
    let properties = (0..40).map(|at| (format!("parameter_{at}"), json!({"type": "string"})));
    let tools = [tool("t", "Does it.", properties.collect())];
    let answer = SearchIndex::new([("s", &tools[..])]).search(&SearchQuery::new("does it t")).unwrap();
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
        r#"{"query": "x", "detail": "names"}"#,
        "{}",
    ] {
        read(text).unwrap_err();
    }
}
