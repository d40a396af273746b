//! The notebook of a session, as Jupyter's own programs read it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Ipybox, PATIENCE, Place, environment, eventually, kernel_python, probe, tool};

const FILE: &str = "run.ipynb";

async fn ipybox(place: &Place, flags: &[&str]) -> Ipybox {
    let python = kernel_python();
    let flags = [&["--python", python.to_str().unwrap()], flags].concat();
    let mut ipybox = place.start_with(&flags, &[("API_KEY", "the-secret-value")]).await;
    ipybox.initialize().await;
    ipybox
}

async fn writing(place: &Place) -> Ipybox {
    ipybox(place, &["--notebook", FILE]).await
}

/// The notebook, if Jupyter's library finds nothing wrong with it.
#[track_caller]
fn valid(path: &Path) -> Value {
    let check = "import nbformat, sys\nnotebook = nbformat.read(sys.argv[1], as_version=nbformat.NO_CONVERT)\n\
                 assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)\nnbformat.validate(notebook)";
    let output = Command::new(tool("jupyter/bin/python"))
        .args(["-W", "error", "-c", check])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The cells with code.
fn cells(notebook: &Value) -> Vec<Value> {
    let cells = notebook["cells"].as_array().unwrap().iter();
    cells.filter(|cell| cell["cell_type"] == "code").cloned().collect()
}

fn joined(lines: &Value) -> String {
    lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

fn source(cell: &Value) -> String {
    joined(&cell["source"])
}

#[tokio::test]
pub(crate) async fn cells_are_written_as_jupyter_writes_them() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    let mut server = probe();
    server["env"] = json!({"KEY": "${API_KEY}"});
    ipybox.register("probe", server).await.ok();
    ipybox.cell("print('one')\nimport sys; print('two', file=sys.stderr)\n41 + 1").await.ok();
    ipybox.cell("print('a', '\\ud800', 'b')").await.ok();
    ipybox.cell("class Table:\n    def _repr_html_(self): return '<table></table>'\nTable()").await.ok();
    let plot =
        "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2]); plt.show()\nprint('after')";
    ipybox.cell(plot).await.ok();
    ipybox.cell("1 / 0").await.error();
    ipybox
        .cell("from mcptools.probe import echo, fail\nprint(echo.run(text='the-secret-value'), 'the-secret-value')")
        .await
        .ok();
    ipybox.cell("fail.run(reason='no')").await.error();
    ipybox.stop().await;

    let path = place.workspace().join(FILE);
    let notebook = valid(&path);
    assert!(!std::fs::read_to_string(&path).unwrap().contains("the-secret-value"));
    let cells = cells(&notebook);
    assert_eq!(
        cells.iter().map(|cell| cell["execution_count"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7]
    );
    let [first, odd, frame, plot, error, call, failed] = &cells[..] else { panic!("{notebook}") };
    assert_eq!(joined(&first["outputs"][0]["text"]), "one\ntwo\n");
    assert_eq!(first["outputs"][1]["output_type"], "execute_result");
    assert_eq!(first["outputs"][1]["data"], json!({"text/plain": ["42"]}));
    assert!(joined(&odd["outputs"][0]["text"]).starts_with("a "), "{odd}");
    assert!(joined(&frame["outputs"][0]["data"]["text/html"]).contains("<table"), "{frame}");
    let kinds =
        plot["outputs"].as_array().unwrap().iter().map(|output| output["output_type"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), ["stream", "display_data", "stream"]);
    assert!(plot["outputs"][1]["data"]["image/png"].is_string());
    assert!(plot["outputs"][1]["metadata"]["ipybox"]["files"][0].as_str().unwrap().starts_with("images/"));
    assert_eq!(error["outputs"][0]["ename"], "ZeroDivisionError");
    assert_eq!(error["metadata"]["tags"], json!(["raises-exception"]));
    assert_eq!(joined(&call["outputs"][0]["text"]), "${API_KEY} ${API_KEY}\n");
    let ours = &call["metadata"]["ipybox"];
    assert_eq!((&ours["author"], &ours["end"]), (&json!("agent"), &json!("finished")));
    let noted = &ours["calls"][0];
    assert_eq!((&noted["server"], &noted["tool"]), (&json!("probe"), &json!("echo")));
    assert_eq!(noted["arguments"], json!({"text": "${API_KEY}"}));
    assert_eq!((&noted["decision"], &noted["outcome"]), (&json!("accepted"), &json!("result")));
    assert_eq!(failed["metadata"]["ipybox"]["calls"][0]["outcome"], "error");
}

/// Runs `jupyter execute` on a notebook, and returns the one that it has made.
async fn executed(place: &Place, variables: &[(&str, &str)]) -> Value {
    let path = place.workspace().join(FILE);
    let output = path.with_file_name("again.ipynb");
    let kernels = place.temporary().join("jupyter");
    std::fs::create_dir_all(kernels.join("kernels/python3")).unwrap();
    let python = kernel_python();
    let argv = [python.to_str().unwrap(), "-m", "ipykernel_launcher", "-f", "{connection_file}"];
    let spec = json!({"argv": argv, "display_name": "Python 3", "language": "python"});
    std::fs::write(kernels.join("kernels/python3/kernel.json"), spec.to_string()).unwrap();
    let mut command = tokio::process::Command::new(tool("jupyter/bin/jupyter"));
    command
        .args(["execute", "--output"])
        .arg(&output)
        .arg(&path)
        .env_clear()
        .envs(environment())
        .env("JUPYTER_PATH", kernels)
        .envs(variables.iter().copied())
        .kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    valid(&output)
}

#[tokio::test]
async fn a_notebook_runs_again_with_the_tools_of_its_workspace() {
    let place = Place::new();
    let mut ipybox = ipybox(&place, &["--notebook", FILE]).await;
    ipybox.register("probe", probe()).await.ok();
    ipybox.cell("x = 20\nimport asyncio; await asyncio.sleep(0)").await.ok();
    ipybox.cell("1 / 0").await.error();
    let timeout = json!({"code": "import time; time.sleep(1000)", "timeout": 0.5});
    ipybox.call("execute_ipython_cell", timeout).await.error();
    ipybox.cell("from mcptools.probe import add\nprint(x + add.run(a=x, b=2).total)").await.ok();
    ipybox.stop().await;

    let server = ipybox::ToolServer::builder().port(0).start().await.unwrap();
    crate::support::standalone::runner(&server, "probe").register(&probe()).await.unwrap();
    let modules = crate::support::repository().join("src/tools/tool_server");
    let modules = std::env::join_paths([modules, place.workspace()]).unwrap();
    let variables = [
        ("PYTHONPATH", modules.to_str().unwrap()),
        ("IPYBOX_TOOL_SERVER", &server.address().to_string()),
        ("IPYBOX_TOOL_SERVER_TOKEN", server.token()),
    ];
    let again = cells(&executed(&place, &variables).await);
    assert_eq!(joined(&again[3]["outputs"][0]["text"]), "42\n");
    assert_eq!(again[1]["outputs"][0]["ename"], "ZeroDivisionError");
    server.stop().await;
}

#[tokio::test]
async fn resets_and_deaths_are_in_the_notebook() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    ipybox.cell("x = 1").await.ok();
    ipybox.reset().await;
    ipybox.cell("x").await.error();
    ipybox.cell("print('last words', flush=True)\nimport os; os._exit(3)").await.error();
    ipybox.cell("'alive'").await.ok();
    let running = ipybox
        .start_cell("print('begun', flush=True)\nopen('runs', 'w').close()\nimport time; time.sleep(1000)")
        .await;
    eventually("the cell runs", || place.workspace().join("runs").exists()).await;
    ipybox.stop().await;
    drop(running);

    let notebook = valid(&place.workspace().join(FILE));
    let all = notebook["cells"].as_array().unwrap();
    let fresh = |cell: &&Value| source(cell).contains("A fresh kernel");
    assert_eq!(all.iter().filter(fresh).count(), 2);
    let cells = cells(&notebook);
    let word = |place: usize| cells[place]["metadata"]["ipybox"]["end"].as_str().unwrap();
    assert_eq!([0, 1, 2, 3].map(word), ["finished", "error", "died", "finished"]);
    assert_eq!(joined(&cells[2]["outputs"][0]["text"]), "last words\n");
    assert_eq!(cells[2]["metadata"]["tags"], json!(["skip-execution"]));
    // What ran when the session ended is written too.
    assert!(["stopped", "cancelled"].contains(&word(4)), "{}", word(4));
    assert_eq!(joined(&cells[4]["outputs"][0]["text"]), "begun\n");
}

#[tokio::test]
async fn floods_leave_a_notebook_that_can_be_read() {
    let place = Place::new();
    let mut ipybox = writing(&place).await;
    ipybox.cell("for _ in range(200_000): print('x' * 50)").await.ok();
    ipybox
        .cell("from IPython.display import display\nfor number in range(2_000): display(number)")
        .await
        .ok();
    ipybox.cell("import numpy, matplotlib.pyplot as plt\nplt.figure(figsize=(20, 20), dpi=150); plt.imshow(numpy.random.rand(2500, 2500), interpolation='none'); plt.show()").await.ok();
    ipybox.stop().await;
    let path = place.workspace().join(FILE);
    let cells = cells(&valid(&path));
    let text = joined(&cells[0]["outputs"][0]["text"]);
    assert!(text.contains("characters left out") && text.len() < 300_000, "{}", text.len());
    let link = joined(&cells[0]["outputs"][1]["data"]["text/plain"]);
    let file = link.strip_prefix("The whole output: ").unwrap();
    assert_eq!(std::fs::metadata(place.workspace().join(file)).unwrap().len(), 200_000 * 51);
    let more = cells[1]["outputs"].as_array().unwrap().last().unwrap();
    assert_eq!(joined(&more["text"]), "[1600 more outputs were left out]\n");
    let link = joined(&cells[2]["outputs"][0]["data"]["text/plain"]);
    let (words, image) = link.split_once(": ").unwrap();
    assert!(words.starts_with("An image of ") && place.workspace().join(image).exists(), "{link}");
    assert!(std::fs::metadata(path).unwrap().len() < 1024 * 1024);
}

#[tokio::test]
async fn a_file_of_somebody_else_is_left_alone_and_reported_once() {
    let place = Place::new();
    place.write(FILE, "not a notebook");
    let mut ipybox = writing(&place).await;
    ipybox.logged("cannot be written").await;
    let answer = ipybox.cell("1 + 1").await.ok();
    assert!(
        answer.contains("run.ipynb` cannot be written: it is no notebook") && answer.ends_with("\n2"),
        "{answer}"
    );
    assert_eq!(ipybox.cell("2 + 2").await.ok(), "4");
    ipybox.stop().await;
    assert_eq!(place.read(FILE), "not a notebook");
}

#[tokio::test]
async fn code_that_replaces_the_notebook_reaches_nothing_else() {
    let place = Place::new();
    let outside = place.temporary().join("outside.ipynb");
    let outside = outside.to_str().unwrap();
    let mut ipybox = writing(&place).await;
    let path = place.workspace().join(FILE);
    ipybox.cell("import os").await.ok();
    eventually("the notebook is there", || path.metadata().is_ok_and(|it| it.len() > 0)).await;
    let link =
        format!("os.remove('{FILE}'); open('{outside}', 'w').close(); os.symlink('{outside}', '{FILE}')");
    ipybox.cell(&link).await.ok();
    ipybox.logged("a symbolic link, which is not followed").await;
    assert!(ipybox.cell("1").await.ok().contains("a symbolic link, which is not followed"));
    ipybox.cell(&format!("os.remove('{FILE}'); os.mkfifo('{FILE}')")).await.ok();
    assert_eq!(ipybox.cell("2").await.ok(), "2");
    ipybox.cell(&format!("os.remove('{FILE}')")).await.ok();
    ipybox.stop().await;
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "");
    // What could not be written meanwhile is not lost.
    assert_eq!(cells(&valid(&path)).iter().map(source).filter(|code| code == "1" || code == "2").count(), 2);
}

/// The notebooks that ipybox has made by itself.
fn made(place: &Place) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for workspace in std::fs::read_dir(place.states().join("workspaces")).unwrap() {
        let notebooks = std::fs::read_dir(workspace.unwrap().path().join("notebooks"));
        found.extend(notebooks.into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "ipynb"));
    found
}

#[tokio::test]
pub(crate) async fn ipybox_chooses_a_private_place() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let mut client = ipybox(&place, &["--notebook", "auto"]).await;
    client.cell("print('hello')").await.ok();
    client.stop().await;
    let found = made(&place);
    let [path] = &found[..] else { panic!("{found:?}") };
    assert_eq!(source(&cells(&valid(path))[0]), "print('hello')");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // A session without cells leaves none.
    ipybox(&place, &["--notebook", "auto"]).await.stop().await;
    assert_eq!(made(&place).len(), 1);
}

#[tokio::test]
async fn a_later_session_goes_on_with_the_file_and_one_beside_has_its_own() {
    let place = Place::new();
    for number in 0..2 {
        let mut ipybox = writing(&place).await;
        ipybox.cell(&format!("{number}")).await.ok();
        ipybox.call("execute_ipython_cell", json!({"code": "'beside'", "session": "new"})).await.ok();
        ipybox.stop().await;
    }
    let notebook = valid(&place.workspace().join(FILE));
    assert_eq!(cells(&notebook).iter().map(source).collect::<Vec<_>>(), ["0", "1"]);
    let headings =
        notebook["cells"].as_array().unwrap().iter().filter(|cell| source(cell).starts_with("### Session"));
    assert_eq!(headings.count(), 2);
    let names = std::fs::read_dir(place.workspace()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("run-")).collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
}

const SHOWN: &str = "from IPython.display import HTML, Markdown, Math, display
import pandas
display(Markdown('## A *heading*'), Math('x^2'))
display(HTML('<script>alert(1)</script><b>bold</b>'))
pandas.DataFrame({'city': ['Oslo', 'Rome'], 'people': [709000, 2749000]})";

#[tokio::test]
async fn nbconvert_makes_a_page_of_the_notebook_that_ipybox_names() {
    let place = Place::new();
    let mut client = ipybox(&place, &["--notebook", "auto"]).await;
    client.cell(SHOWN).await.ok();
    client.cell("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()").await.ok();
    client.cell("files = !echo listed\nprint(files)").await.ok();
    client.stop().await;

    let path = named(&place, &[]).unwrap();
    assert_eq!(made(&place), [PathBuf::from(&path)]);
    let id = path.strip_suffix(".ipynb").unwrap().rsplit('-').next().unwrap();
    assert_eq!(named(&place, &[&id[..5]]).unwrap(), path);

    let page = converted(&place, &path, &["--to", "html"], "html");
    for part in [
        "<h2 id=\"A-heading\">A <em>heading</em>",
        "<th>city</th>",
        "<td>Rome</td>",
        "<b>bold</b>",
        "src=\"data:image/png;base64,",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    let page = converted(&place, &path, &["--to", "html", "--sanitize-html"], "html");
    assert!(page.contains("<b>bold</b>") && !page.contains("<script>alert(1)"));
    let code = converted(&place, &path, &["--to", "script"], "py");
    assert!(code.contains("\ndisplay(Markdown('## A *heading*')"), "{code}");
}

#[test]
fn a_notebook_that_is_not_there_is_not_named() {
    let place = Place::new();
    assert!(named(&place, &[]).unwrap_err().contains("sessions write one there with `--notebook auto`"));
    assert!(named(&place, &["ffffffff"]).unwrap_err().contains("the session `ffffffff`: there is none"));
}

/// The path that `ipybox notebook` prints, or its error.
fn named(place: &Place, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_ipybox"))
        .arg("notebook")
        .args(arguments)
        .arg("--state-dir")
        .arg(place.states())
        .current_dir(place.workspace())
        .env_clear()
        .envs(environment())
        .output()
        .unwrap();
    let [printed, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(printed.trim_end().to_owned()) } else { Err(error) }
}

/// What `jupyter nbconvert` makes of a notebook.
#[track_caller]
fn converted(place: &Place, notebook: &str, flags: &[&str], extension: &str) -> String {
    let output = Command::new(tool("jupyter/bin/jupyter"))
        .arg("nbconvert")
        .args(flags)
        .args(["--output", "made", "--output-dir"])
        .arg(place.workspace())
        .arg(notebook)
        .env_clear()
        .envs(environment())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.read(&format!("made.{extension}"))
}
