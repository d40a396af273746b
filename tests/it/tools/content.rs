//! What tools return: every kind of content arrives whole, and is of the type that the module promises.

use serde_json::{Value, json};

use crate::support::{Ipybox, Place, probe, test_server, tool};

fn content_server() -> Value {
    json!({"command": tool("mcp1/bin/python"), "args": [test_server("content.py")]})
}

async fn session(place: &Place) -> Ipybox {
    let mut ipybox = place.ipybox().await;
    ipybox.register("content", content_server()).await.ok();
    ipybox.cell("import mcptools.content as content").await.ok();
    ipybox
}

async fn check(ipybox: &mut Ipybox, code: &str, expected: &str) {
    assert_eq!(ipybox.cell(code).await.ok(), expected, "{code}");
}

#[tokio::test]
pub(crate) async fn binary_content_arrives_as_objects() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "\
result = content.picture.run()
picture, = result.attachments
print(result == 'look', picture.media_type, picture.data[:4], picture.save('made/x.png').stat().st_size)
print(result)";
    check(&mut ipybox, code, "True image/png b'\\x89PNG' 70\nlook\n<Image image/png, 70 bytes>").await;
    check(&mut ipybox, "print(content.sounds.run().attachments[0].data)", "b'RIFF'").await;
    let code = "\
result = await content.documents.run_async()
pdf, note = result.attachments
print(pdf.uri, pdf.media_type, pdf.data, pdf.text, note.uri, note.text, result == 'a note')";
    check(&mut ipybox, code, "doc://1 application/pdf b'%PDF' None note://1 a note True").await;
    let code = "\
picture, = content.large_picture.run().attachments
len(picture.data) > 12_000_000";
    check(&mut ipybox, code, "True").await;
    // In a process that the kernel has started, too.
    let code =
        "!python -c \"from mcptools.content import picture; print(len(picture.run().attachments[0].data))\"";
    check(&mut ipybox, code, "70").await;
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn pictures_of_tools_are_shown() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    for (code, text) in [
        ("content.picture.run()", "look"),
        ("content.only_picture.run()", ""),
        ("display(content.picture.run().attachments[0])", ""),
        ("content.count.run()", "Result(count=3"),
    ] {
        let answer = ipybox.cell(code).await;
        assert!(!answer.is_error && answer.text.contains(text), "{code}: {}", answer.text);
        assert!(answer.text.contains("Generated images:"), "{code}: {}", answer.text);
        let [(mime_type, file)] = answer.images.as_slice() else { panic!("{code}: {}", answer.text) };
        assert!(mime_type == "image/png" && file.starts_with(b"\x89PNG"), "{code}");
    }
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn links_are_read_from_their_server() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "\
report, nowhere = content.links.run().attachments
held = report.read()
print(report.uri, report.size, held == 'a note', held.attachments[0].data, (await report.read_async()) == held)
try: nowhere.read()
except Exception as error: print(type(error).__name__, 'no resource doc://nowhere' in str(error))";
    check(&mut ipybox, code, "doc://report 6 True b'%PDF-1' True\nToolRunnerError True").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn reading_a_resource_is_approved_like_a_call() {
    let place = Place::new();
    place.write(
        "policy.toml",
        "default = \"allow\"\n\n[[rule]]\nserver = \"content\"\ntool = \"resources/*\"\neffect = \"deny\"\n",
    );
    let policy = place.workspace().join("policy.toml");
    let python = crate::support::kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--approval-policy", policy.to_str().unwrap()];
    let mut ipybox = place.start(&flags).await;
    ipybox.initialize().await;
    ipybox.register("content", content_server()).await.ok();
    let code = "\
from mcptools.content import links
links.run().attachments[0].read()";
    let text = ipybox.cell(code).await.error();
    assert!(text.contains("ApprovalRejectedError") && text.contains("resources/read"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
pub(crate) async fn results_are_of_the_promised_type() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    for (code, expected) in [
        ("content.undeclared.run()", "'seven'"),
        ("content.undeclared.run().structured", "{'number': 7}"),
        ("content.undeclared_without_text.run()", "'{\"number\": 7}'"),
        ("content.nothing.run()", "''"),
        ("content.count_as_text.run().count", "4"),
        ("content.count.run().tool_result == 'see'", "True"),
    ] {
        check(&mut ipybox, code, expected).await;
    }
    let code = "\
from ipybox_runtime import UnexpectedResultError
for call in (content.miscount.run, content.miscount_as_text.run):
    try: call()
    except UnexpectedResultError as error: print(error.result, 'the tool has run' in str(error))";
    check(&mut ipybox, code, "{'count': 'many'} True\nmany True").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn types_are_inferred_from_json_between_prose() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    let code = "\
from ipybox_runtime import infer_result
from mcptools.content import prose
_ = infer_result(prose, prose.run())
[item.a for item in prose.run_parsed()]";
    check(&mut ipybox, code, "[1, 2]").await;
    ipybox.stop().await;
}

#[tokio::test]
async fn wrong_names_are_answered_with_the_right_ones() {
    let place = Place::new();
    let mut ipybox = session(&place).await;
    ipybox.register("probe", probe()).await.ok();
    let text = ipybox.cell("content.pictures.run()").await.error();
    assert!(text.contains("no tool 'pictures'; did you mean 'picture'"), "{text}");
    let text = ipybox.cell("import mcptools.probe\nmcptools.probe.echo.run(txt='x')").await.error();
    assert!(text.contains("Field required; 'txt' is no field"), "{text}");
    let text = ipybox.cell("mcptools.probe.echo.run('x')").await.error();
    assert!(text.contains("instance of Params; the fields are: text"), "{text}");
    let text = ipybox.cell("print(mcptools.probe.echo)").await.ok();
    assert!(text.contains("Gives the text back.\n\nrun(text: str) -> ToolResult"), "{text}");
    let text = ipybox.cell("mcptools.probe.echo.run?").await.ok();
    assert!(text.contains("(*, text: str) -> ToolResult"), "{text}");
    ipybox.stop().await;
}

#[tokio::test]
async fn tools_for_apps_are_not_for_models() {
    let place = Place::new();
    let mut ipybox = place.ipybox().await;
    let text = ipybox.register("content", content_server()).await.ok();
    assert!(!text.lines().any(|line| line == "for_apps"), "{text}");
    assert!(text.contains("tools left out") && text.ends_with("not for models: for_apps"), "{text}");
    // Nor by another way, in this session or the next.
    let code = "from mcptools.content import CLIENT\nCLIENT.run_sync('for_apps', {})";
    for _ in 0..2 {
        let text = ipybox.cell(code).await.error();
        assert!(text.contains("`content.for_apps` cannot be called"), "{text}");
        ipybox.stop().await;
        ipybox = place.ipybox().await;
    }
    ipybox.stop().await;
}
