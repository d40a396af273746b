//! Resources and prompts of servers are Python too.

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, test_server, tool};

fn library_server(flags: &[&str]) -> Value {
    let script = test_server("library.py");
    let arguments: Vec<&str> = [script.to_str().unwrap()].into_iter().chain(flags.iter().copied()).collect();
    json!({"command": tool("mcp1/bin/python"), "args": arguments})
}

async fn session(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("library", library_server(&[])).await.ok();
    ipybox
}

async fn check(ipybox: &mut Ipybox, code: &str, expected: &str) {
    assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
}

#[tokio::test]
pub(crate) async fn resources_are_listed_and_read() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "\
from mcptools.library import resources
listed = resources.list()
note = listed[4]
print(len(listed), note, note.name, note.title, note.media_type, note.size, note.read()[:])
print([link.uri for link in await resources.list_async()] == [link.uri for link in listed])
print(resources.read('note://7')[:], (await resources.read_async('note://8'))[:])";
    let expected = "\
6 <ResourceLink note://4 text/plain 4 bytes> note 4 Note 4 text/plain 4 contents of note://4
True
contents of note://7 contents of note://8";
    check(&mut ipybox, code, expected).await;
    let code = "\
print(resources.file_contents('a b/c', q={'x': '1&2'})[:])
print((await resources.file_contents_async(path='ü', lines='1-3'))[:])
print([template.name for template in resources.templates()], resources.templates()[0].read(path='d')[:])
try: resources.read('none://x')
except Exception as error: print(type(error).__name__, 'no resource none://x' in str(error))";
    let expected = "\
contents of file:///a%20b/c?x=1%262
contents of file:///%C3%BC?lines=1-3
['File Contents', 'broken', 'hostile'] contents of file:///d
ToolRunnerError True";
    check(&mut ipybox, code, expected).await;
    // The traceback shows the cell, and not what carries the call.
    let text = ipybox.cell("resources.read('none://x')").await.error();
    assert!(text.contains("resources.read('none://x')") && !text.contains("_RESOURCES"), "{text}");
    let text = ipybox.cell("import mcptools.library\nmcptools.library.resource").await.error();
    assert!(text.contains("did you mean 'resources'?"), "{text}");
    let text = ipybox.cell("import mcptools.library\nprint(mcptools.library)").await.ok();
    assert!(text.contains("resources: the server's resources, 2 as functions"), "{text}");
    assert!(text.contains("\nprompts_1: the server's prompts, 3 as functions"), "{text}");
    let text = ipybox.cell("print(resources)").await.ok();
    let line = "\nfile_contents(path: str, lines: str | None = None, q: ";
    assert!(text.contains(line) && text.contains("-> ToolResult: Reads a file.\n"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn prompts_are_functions_with_typed_arguments() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    // A tool has the name of the module.
    let code = "\
from mcptools.library import prompts, prompts_1
print(prompts.run(), [prompt.name for prompt in prompts_1.list()][:2])
greet = prompts_1.list()[0]
print(greet, greet.description, greet.arguments)
print(prompts_1.greet_user('a'), prompts_1.greet_user(class_='a', style='b')[0].content)
print((await prompts_1.get_async('greet-user', **{'class': 'c'}))[0].content, greet.get(style='d')[0].content)";
    let expected = "\
a tool ['greet-user', 'everything']
<Prompt greet-user(style, class)> Greets a user. [<PromptArgument style, optional>, <PromptArgument class>]
[PromptMessage(role='user', content=\"[('class', 'a')]\")] [('class', 'a'), ('style', 'b')]
[('class', 'c')] [('style', 'd')]";
    check(&mut ipybox, code, expected).await;
    let code = "\
text, picture, note, link = prompts_1.everything()
print(text.role, text.content, picture.role, picture.content.data, note.content.text, link.role, link.content.read()[:])";
    check(&mut ipybox, code, "user look assistant b'\\x89PNG' a note assistant contents of note://2").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn a_registration_says_in_a_line_what_else_there_is() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.register("library", library_server(&[])).await.ok();
    let line = "\nresources: 3 templates, prompts: 3 (`from mcptools.library import resources, prompts_1`)";
    assert!(text.contains(line), "{text}");
    let text = ipybox.register("library", library_server(&[])).await.ok();
    assert!(!text.contains("Since the last"), "{text}");
    let text = ipybox.register("library", library_server(&["--changed"])).await.ok();
    let warning = "Warning: known prompts have changed, read them again before you trust them: greet-user";
    assert!(text.contains(warning), "{text}");
    // What cannot be listed is a note, and the tools can be used. Templates that a server does not know are none.
    let text = ipybox.register("library", library_server(&["--failing"])).await.ok();
    let note =
        "its prompts are left out: the server answered `prompts/list` with an error: the prompts are lost";
    assert!(text.contains(note) && !text.contains("templates are left out"), "{text}");
    let code = "\
from mcptools.library import prompts, resources
print(prompts.run(), len(resources.list()))";
    check(&mut ipybox, code, "a tool 6").await;
    // An inference keeps the other modules, and another session finds them.
    ipybox.register("library", library_server(&[])).await.ok();
    let code = "\
from ipybox_runtime import ToolResult, infer_result
from mcptools.library import prompts
_ = infer_result(prompts, '{\"a\": 1}')";
    ipybox.cell(code).await.ok();
    ipybox.stop().await;
    let mut ipybox = place.ipybox().await;
    let code = "from mcptools.library import prompts_1\nprompts_1.greet_user('x')[0].content";
    check(&mut ipybox, code, "\"[('class', 'x')]\"").await;
    let text = ipybox.register("library", library_server(&[])).await.ok();
    assert!(!text.contains("Since the last"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn lists_and_prompts_are_approved_like_calls_and_recorded() {
    let place = Place::new();
    let rule = |name: &str, effect: &str| {
        format!("[[rule]]\nserver = \"library\"\ntool = \"{name}\"\neffect = \"{effect}\"\n\n")
    };
    let rules = rule("resources/list", "allow") + &rule("prompts/get", "allow");
    place.write(
        "policy.toml",
        &format!("default = \"deny\"\n\n{rules}{}", rule("register_mcp_server", "allow")),
    );
    let policy = place.workspace().join("policy.toml");
    let log = place.temporary().join("audit.jsonl");
    let python = crate::support::kernel_python();
    let flags = ["--python", "--approval-policy", "--audit-log"];
    let values = [python.to_str().unwrap(), policy.to_str().unwrap(), log.to_str().unwrap()];
    let flags: Vec<&str> = flags.iter().zip(values).flat_map(|(flag, value)| [*flag, value]).collect();
    {
        session(&place).await.stop().await;
    }
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize().await;
    let code = "\
from mcptools.library import prompts_1, resources
print(len(resources.list()), prompts_1.greet_user('x')[0].content)
for call in (resources.templates, prompts_1.list, lambda: resources.read('note://1')):
    try: call()
    except Exception as error: print(error)";
    let expected = "\
6 [('class', 'x')]
`library.resources/templates/list` is denied by the approval policy
`library.prompts/list` is denied by the approval policy
`library.resources/read` is denied by the approval policy";
    check(&mut ipybox, code, expected).await;
    ipybox.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    for words in ["resources/list", "resources/templates/list", "prompts/list", "prompts/get", "greet-user"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test]
async fn code_names_a_server_and_what_it_wants_and_nothing_else() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "\
import ipybox_runtime
def refused(path, **members):
    try: print(ipybox_runtime.ask_host(path, members))
    except Exception as error: print(str(error)[:200].splitlines()[0])
refused('/list', server_name='library', kind='tools')
refused('/list', server_name='library', kind='prompts', command='sh')
refused('/list', server_name='x' * 2000, kind='prompts')
refused('/list', server_name='library', kind='x' * 20000)
refused('/list', server_name='gone', kind='prompts')
refused('/prompt', server_name='library', prompt_name='x' * 2000)
refused('/prompt', server_name='library', prompt_name='everything', prompt_args={'a': 1})
refused('/prompt', server_name='library', prompt_name='everything', arguments={})";
    let text = ipybox.cell(code).await.ok();
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "(422)",
        "(422)",
        "(413)",
        "(413)",
        "no MCP server is registered as `gone`",
        "(413)",
        "(422)",
        "(422)",
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, words) in lines.iter().zip(expected) {
        assert!(line.contains(words), "{words}: {text}");
    }
    ipybox.stop().await;
}

#[tokio::test]
async fn resources_and_prompts_of_the_everything_server_are_python() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let script = tool("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let parameters = json!({"command": tool("bin/node"), "args": [script]});
    let text = ipybox.register("everything", parameters).await.ok();
    assert!(text.contains("(`from mcptools.everything import resources, prompts`)"), "{text}");
    let code = "\
from mcptools.everything import prompts, resources
print(len(resources.list()[0].read()) > 0, resources.dynamic_text_resource('7').attachments[0].uri)
print(resources.dynamic_blob_resource(resourceId=3).attachments[0])
print(prompts.simple_prompt()[0].role, [prompt.name for prompt in prompts.list()])
print(prompts.args_prompt('Rome', state='IT')[0].content)";
    let text = ipybox.cell(code).await.ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "True demo://resource/dynamic/text/7");
    assert!(lines[1].starts_with("<Resource demo://resource/dynamic/blob/3 "), "{text}");
    assert!(lines[2].starts_with("user ['simple-prompt', 'args-prompt', "), "{text}");
    assert!(lines[3].contains("Rome") && lines[3].contains("IT"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_package_without_a_session_has_them_in_the_asked_form() {
    let place = Place::new();
    let root = place.workspace().join("mcptools");
    let mut apigen = std::process::Command::new(env!("CARGO_BIN_EXE_ipybox"));
    apigen.args(["apigen", "--async", "--server-name", "library", "--root-dir"]).arg(&root);
    apigen.arg("--server-params").arg(library_server(&[]).to_string());
    let output = apigen.output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{words}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "prompts\n");
    assert!(words.contains("resources (broken): its URI template has no function"), "{words}");
    for (file, line) in [
        ("resources", "async def file_contents(path: str, lines: str | None = None, q: "),
        ("resources", "def list_sync() -> "),
        ("prompts_1", "def greet_user_sync(class_: str, style: str | None = None) -> "),
    ] {
        let text = place.read(&format!("mcptools/library/{file}.py"));
        assert!(text.lines().any(|found| found.starts_with(line)), "{line}: {text}");
    }
}
