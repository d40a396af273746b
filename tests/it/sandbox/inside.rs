//! What code in a sandbox can do and sees: tools, approval, variables, processes, files.

use ipybox::{
    CodeExecutionError, CodeExecutionEvent, CodeExecutor, Registry, SandboxBackend, generate_mcp_sources,
};
use serde_json::json;

use super::session::{BACKENDS, document, names, policy, start, uninitialized};
use crate::support::{Place, equipped, kernel_python, probe, tool};

#[tokio::test]
async fn approval_is_asked_for_and_obeyed() {
    for backend in BACKENDS {
        let place = Place::new();
        let flags = ["--approval", "ask", "--approve-shell-cmds"];
        let mut ipybox = uninitialized(&place, backend, &flags, &[]).await;
        ipybox.initialize_with(json!({"elicitation": {}})).await;
        let arguments = json!({"server_name": "probe", "server_params": probe()});
        let registration = ipybox.start_call("register_mcp_server", arguments).await;
        ipybox.decide("allow once").await;
        registration.answer().await.ok();
        let call = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='called')))";
        for (code, asked, shown) in [
            (call, "called", "called"),
            ("!echo command", "echo command", "command"),
            ("%%bash\necho magic", "echo magic", "magic"),
        ] {
            let running = ipybox.start_cell(code).await;
            let question = ipybox.decide("allow once").await;
            assert!(question.contains(asked), "{backend}: {question}");
            assert_eq!(running.answer().await.ok(), shown, "{backend}");
            let running = ipybox.start_cell(code).await;
            ipybox.decide("deny").await;
            let text = running.answer().await.error();
            assert!(text.contains("reject"), "{backend}: {text}");
        }
        ipybox.stop().await;
    }
}

#[tokio::test]
async fn code_gets_its_variables_and_not_the_secrets() {
    for backend in BACKENDS {
        let place = Place::new();
        place.write(".env", "KERNEL_ENV_FILE_KEY=file\nAPI_KEY=s3cret\n");
        place.write(".env.local", "API_KEY=s3cret\n");
        let variables = [("KERNEL_ENV_GIVEN", "given"), ("PLAIN", "s3cret")];
        let mut ipybox = uninitialized(&place, backend, &[], &variables).await;
        ipybox.initialize().await;
        let code =
            "import os\nprint(os.environ['GIVEN'], os.environ['FILE_KEY'], 's3cret' in str(os.environ))";
        assert_eq!(ipybox.cell(code).await.ok(), "given file False", "{backend}");
        for name in [".env", ".env.local"] {
            for code in [format!("print(repr(open('{name}').read()))"), format!("!cat {name}")] {
                let text = ipybox.cell(&code).await.text;
                assert!(!text.contains("s3cret"), "{backend}: {code}: {text}");
            }
        }
        assert!(ipybox.cell("open('.env', 'w')").await.is_error, "{backend}");
        ipybox.stop().await;
        assert_eq!(place.read(".env"), "KERNEL_ENV_FILE_KEY=file\nAPI_KEY=s3cret\n");
    }
}

#[tokio::test]
async fn processes_and_temporary_files_are_to_be_had() {
    for backend in BACKENDS {
        let place = Place::new();
        let mut ipybox = start(&place, backend, &[]).await;
        ipybox.cell("import concurrent.futures, multiprocessing, os, subprocess, tempfile").await.ok();
        for (code, expected) in [
            // Start methods that need Unix sockets are not the default, whatever Python's is.
            ("with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))", "[1, 2]"),
            (
                "with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-1, -2]))",
                "[1, 2]",
            ),
            (
                "with concurrent.futures.ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-1])))",
                "[1]",
            ),
            ("subprocess.run(['sh', '-c', 'exit 3']).returncode", "3"),
            ("with tempfile.NamedTemporaryFile() as file: file.write(b'x')", "[no output]"),
            (
                "print(subprocess.check_output(['mktemp'], text=True).startswith(os.environ['TMPDIR']))",
                "True",
            ),
            ("tempfile.gettempdir() == os.environ['TMPDIR']", "True"),
        ] {
            assert_eq!(ipybox.cell(code).await.ok(), expected, "{backend}: {code}");
        }
        ipybox.stop().await;
        assert_eq!(names(&place.workspace()), [".ipybox", "mcptools"], "{backend}");
    }
}

#[tokio::test]
async fn odd_paths_and_a_missing_home_are_fine() {
    for backend in BACKENDS {
        let place = Place::named("it's \"my\" work & $HOME é");
        let python = kernel_python();
        let flags = ["--python", python.to_str().unwrap(), "--sandbox", "--sandbox-backend", backend];
        let path = equipped();
        let mut ipybox = place.start_by(&["env", "-u", "HOME"], &flags, &[("PATH", &path)]).await;
        ipybox.initialize().await;
        let code = "import os\nopen('made here', 'w').close()\nprint(os.getcwd())";
        assert_eq!(ipybox.cell(code).await.ok(), place.workspace().to_str().unwrap(), "{backend}");
        let plot = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()";
        assert_eq!(ipybox.cell(plot).await.images.len(), 1, "{backend}");
        ipybox.stop().await;
        assert_eq!(names(&place.workspace()), [".ipybox", "images", "made here", "mcptools"], "{backend}");
    }
}

#[tokio::test]
async fn a_server_of_its_own_sandbox_works_within_it() {
    let place = Place::new();
    place.write(".env", "API_KEY=s3cret");
    place.write("README.md", "read me");
    place.write("kept/file", "as it was");
    let inside = |name: &str| place.workspace().join(name);
    let closed = [inside(".env"), inside("kept")];
    let rules = json!({"denyRead": [closed[0]], "allowWrite": [place.workspace()], "denyWrite": closed});
    let settings = policy(&place, &document(&json!({}), &rules));
    let server = tool("npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let mut ipybox = start(&place, "bwrap", &[]).await;
    let parameters = json!({
        "command": tool("bin/srt"),
        "args": ["--settings", settings, "--", tool("bin/node"), server, "${workspace}"],
        "env": {"PATH": equipped()},
    });
    let tools = ipybox.register("filesystem", parameters).await.ok();
    assert!(tools.contains("read_text_file"), "{tools}");
    ipybox.cell("from mcptools.filesystem import read_text_file, write_file").await.ok();
    for (code, expected) in [
        ("print(read_text_file.run(path='README.md'))", Ok("read me")),
        ("print(write_file.run(path='made', content='by the server'))", Ok("wrote")),
        ("read_text_file.run(path='.env')", Err("EACCES")),
        ("write_file.run(path='kept/file', content='changed')", Err("EROFS")),
        ("write_file.run(path='kept/new', content='new')", Err("EROFS")),
    ] {
        let answer = ipybox.cell(code).await;
        let (is_error, words) = match expected {
            Ok(words) => (false, words),
            Err(words) => (true, words),
        };
        assert_eq!(answer.is_error, is_error, "{code}: {}", answer.text);
        assert!(answer.text.contains(words) && !answer.text.contains("s3cret"), "{code}: {}", answer.text);
    }
    ipybox.stop().await;
    assert_eq!((place.read("made"), place.read("kept/file")), ("by the server".into(), "as it was".into()));
    assert!(!place.workspace().join("kept/new").exists());
}

/// With bubblewrap, which is on everybody's `PATH`: a library has only the environment of its own process.
#[tokio::test]
async fn an_application_has_a_sandbox_too() {
    let place = Place::new();
    let registry = Registry::new();
    generate_mcp_sources(&registry, "probe", &probe(), place.workspace().join("mcptools")).await.unwrap();
    let executor = CodeExecutor::builder()
        .working_dir(place.workspace())
        .state_dir(place.states())
        .python(kernel_python())
        .registry(&registry)
        .sandbox_backend(SandboxBackend::Bubblewrap)
        .gateway_program(env!("CARGO_BIN_EXE_ipybox"))
        .start()
        .await
        .unwrap();
    executor.execute("x = 41").await.unwrap();
    assert_eq!(executor.execute("x + 1").await.unwrap().text.as_deref(), Some("42"));
    let beside = place.temporary().join("file");
    let error = executor.execute(&format!("open({:?}, 'w')", beside.to_str().unwrap())).await.unwrap_err();
    assert!(matches!(error, CodeExecutionError::Raised { .. }), "{error}");
    assert!(!beside.exists());
    let mut execution =
        executor.stream("from mcptools.probe import echo\nprint(echo.run(echo.Params(text='asked')))");
    while let Some(event) = execution.next().await {
        match event.unwrap() {
            CodeExecutionEvent::ApprovalRequest(request) => assert!(request.accept()),
            CodeExecutionEvent::Result(result) => assert_eq!(result.text.as_deref(), Some("asked")),
            _ => {}
        }
    }
    executor.reset().await.unwrap();
    assert!(executor.execute("x").await.unwrap_err().to_string().contains("NameError"));
    executor.stop().await;
    assert_eq!(names(&place.workspace()), [".ipybox", "mcptools"]);
}
