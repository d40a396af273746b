//! Shell commands that ask before they run.

use serde_json::json;

use crate::support::{Ipybox, Place, kernel_python};

const ASKING: &[&str] = &["--approve-shell-cmds"];
const ONLY_ESCAPE: &[&str] = &["--approve-shell-cmds", "--require-shell-escape"];

/// A tool server in the kernel: `asked` is what it was asked since the last look, `answer` what it answers.
const APPROVER: &str = r"
import http.server, json, os, threading
answer, questions = {'result': True}, []
rejected = {'error': {'kind': 'rejected', 'message': 'somebody said no'}}
class Approver(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        assert self.path == '/approve' and set(body) == {'tool_name', 'tool_args'}
        questions.append((body['tool_name'], body['tool_args']['cmd']))
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_):
        pass
def asked():
    said = questions[:]
    questions.clear()
    return said
approver = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Approver)
approver.daemon_threads = True
threading.Thread(target=approver.serve_forever, daemon=True).start()
os.environ['IPYBOX_TOOL_SERVER'] = '%s:%d' % approver.server_address
";

/// With [`APPROVER`].
async fn asking(place: &Place, flags: &[&str]) -> Ipybox {
    let mut ipybox = place.ipybox_with(flags).await;
    ipybox.cell(APPROVER).await.ok();
    ipybox
}

/// Whether nothing has happened in the workspace.
fn is_untouched(place: &Place) -> bool {
    std::fs::read_dir(place.workspace()).unwrap().all(|entry| entry.unwrap().file_name() != "touched")
}

#[tokio::test]
pub(crate) async fn commands_run_as_ever_where_everything_is_allowed() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&["--approve-shell-cmds", "--log-level", "DEBUG"]).await;
    assert_eq!(ipybox.cell("!echo secret-1").await.ok(), "secret-1");
    assert_eq!(ipybox.cell("x = !echo two; echo three\nx").await.ok(), "['two', 'three']");
    assert_eq!(ipybox.cell("%%bash\necho four").await.ok(), "four");
    let refused = ipybox.cell("!sleep 1 &").await.error();
    assert!(refused.contains("Background processes not supported"), "{refused}");
    let asked = || ipybox.log().matches("a shell command asked for approval").count();
    crate::support::eventually("three questions are logged", || asked() >= 3).await;
    let log = ipybox.log();
    assert_eq!(asked(), 3, "{log}");
    assert!(!log.contains("secret-1"), "{log}");
    ipybox.stop().await;
}

#[tokio::test]
async fn nobody_is_asked_by_default() {
    let place = Place::new();
    let mut ipybox = asking(&place, &[]).await;
    assert_eq!(ipybox.cell("!echo one").await.ok(), "one");
    assert_eq!(ipybox.cell("%%bash\necho two").await.ok(), "two");
    assert_eq!(ipybox.cell("import subprocess; subprocess.run(['true']).returncode").await.ok(), "0");
    assert_eq!(ipybox.cell("asked()").await.ok(), "[]");
    ipybox.stop().await;
}

#[tokio::test]
async fn what_is_asked_is_what_runs() {
    let place = Place::new();
    let mut ipybox = asking(&place, ASKING).await;
    ipybox.cell("name = 'a b'; later = '{name} $name'").await.ok();
    for (cell, output, tool, cmd) in [
        ("!echo {name} $name", "a b a b", "shell", "echo a b a b"),
        ("def f():\n    name = 'local'\n    !echo {name}\nf()", "local", "shell", "echo local"),
        ("x = !echo {name}\nprint(x)", "['a b']", "shell", "echo a b"),
        ("!!echo $name", "['a b']", "shell", "echo a b"),
        ("%sx echo {name}", "['a b']", "shell", "echo a b"),
        ("%system echo {name}", "['a b']", "shell", "echo a b"),
        ("%%system\necho {name}", "['a b']", "shell", "echo a b"),
        ("%%!\necho one\necho two", "['one', 'two']", "shell", "echo one\necho two"),
        // Once: what a variable brings is not expanded again, but by the shell.
        ("!echo '{later}'", "{name} $name", "shell", "echo '{name} $name'"),
        ("x = !echo '{later}'\nprint(x)", "['{name} $name']", "shell", "echo '{name} $name'"),
        ("%alias hello echo hello %s\n%hello you", "hello you", "shell", "echo hello you "),
        ("get_ipython().system_piped('echo {name}')", "a b", "shell", "echo a b"),
        ("get_ipython().system_raw('echo {name}')", "a b", "shell", "echo a b"),
        ("%%bash\necho {name} $0", "{name} bash", "shell_magic", "echo {name} $0\n"),
        ("%%sh\necho one\necho two", "one\ntwo", "shell_magic", "echo one\necho two\n"),
        ("%%bash -s {name}\necho $1", "a", "shell_magic", "%%script bash -s a b\necho $1\n"),
        ("%%script cat -\none", "one", "shell_magic", "%%script cat -\none\n"),
        ("%%bash\n%%script true 2>&-", "", "shell_magic", "%%script bash\n%%script true 2>&-\n"),
        ("%%python3\nprint(1)", "1", "shell_magic", "%%script python3\nprint(1)\n"),
        ("%%bash --bg --out pipe\necho 1", "", "shell_magic", "echo 1\n"),
    ] {
        let text = ipybox.cell(cell).await.text;
        assert!(text.starts_with(output), "{cell}: {text}");
        let question =
            ipybox.cell("tool, cmd = asked()[0]; assert not questions\nprint(tool, '|', cmd)").await;
        assert_eq!(question.ok(), format!("{tool} | {cmd}").trim_end(), "{cell}");
    }
    // The magics are still there when all of IPython's have been loaded.
    ipybox.cell("%quickref").await.ok();
    ipybox.cell("%%bash\necho 1").await.ok();
    assert_eq!(ipybox.cell("asked()").await.ok(), r"[('shell_magic', 'echo 1\n')]");
    ipybox.stop().await;
}

#[tokio::test]
async fn nothing_runs_that_was_rejected() {
    let place = Place::new();
    let mut ipybox = asking(&place, ASKING).await;
    ipybox.cell("answer = rejected\n%alias create touch").await.ok();
    for cell in [
        "!touch touched",
        "x = !touch touched",
        "!!touch touched",
        "%create touched",
        "%sx touch touched",
        "%%!\ntouch touched",
        "%%bash\ntouch touched",
        "%%bash --bg\ntouch touched",
        "%%sh --no-raise-error\ntouch touched",
        "%%script sh\ntouch touched",
        "%%python3\nopen('touched', 'w')",
        "%pip list > touched",
    ] {
        let text = ipybox.cell(cell).await.error();
        assert!(text.ends_with("ApprovalRejectedError: somebody said no"), "{cell}: {text}");
        assert_eq!(ipybox.cell("len(asked())").await.ok(), "1", "{cell}");
    }
    assert!(is_untouched(&place));
    ipybox.cell("answer = {'error': {'kind': 'timeout', 'message': 'nobody said yes'}}").await.ok();
    let text = ipybox.cell("!touch touched").await.error();
    assert!(text.ends_with("ApprovalTimeoutError: nobody said yes"), "{text}");
    ipybox.cell("answer = {'result': None}").await.ok();
    assert!(ipybox.cell("!touch touched").await.error().contains("ApprovalRejectedError"));
    ipybox.cell("approver.shutdown(); approver.server_close()").await.ok();
    ipybox.cell("import ipybox_runtime; ipybox_runtime._local.connection = None").await.ok();
    let text = ipybox.cell("!touch touched").await.error();
    assert!(text.contains("ToolRunnerError: the tool server cannot be reached"), "{text}");
    assert!(is_untouched(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn waiting_for_approval_can_be_interrupted() {
    let place = Place::new();
    let mut ipybox = asking(&place, ASKING).await;
    let stall = "import time\ndo_POST = Approver.do_POST\ndef stall(self):\n    open('began', 'w').close()\n    time.sleep(600)\nApprover.do_POST = stall";
    ipybox.cell(stall).await.ok();
    let began = place.workspace().join("began");
    for cell in ["!touch touched", "x = !touch touched", "%%bash\ntouch touched"] {
        let running = ipybox.start_cell(cell).await;
        crate::support::eventually("it asks", || began.exists()).await;
        ipybox.cancel(&running).await;
        let text = ipybox.cell("'next'").await.ok();
        assert!(text.contains("KeyboardInterrupt") && text.ends_with("'next'"), "{cell}: {text}");
        std::fs::remove_file(&began).unwrap();
    }
    ipybox.cell("Approver.do_POST = do_POST").await.ok();
    assert_eq!(ipybox.cell("!echo fine").await.ok(), "fine");
    assert!(is_untouched(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn programs_start_by_shell_commands_alone() {
    let place = Place::new();
    let mut ipybox = asking(&place, ONLY_ESCAPE).await;
    ipybox.cell("import asyncio, importlib, multiprocessing, os, pty, subprocess, sys, time").await.ok();
    for call in [
        "subprocess.run(['touch', 'touched'])",
        "subprocess.run('touch touched', shell=True)",
        "subprocess.getoutput('touch touched')",
        "subprocess.Popen(['touch', 'touched'], close_fds=False)",
        "importlib.reload(subprocess).run(['touch', 'touched'])",
        "import _posixsubprocess; _posixsubprocess.fork_exec([b'touch', b'touched'])",
        "os.system('touch touched')",
        "os.popen('touch touched')",
        "os.posix_spawn('/usr/bin/touch', ['touch', 'touched'], {})",
        "os.posix_spawnp('touch', ['touch', 'touched'], {})",
        "os.spawnlp(os.P_WAIT, 'touch', 'touch', 'touched')",
        "os.spawnv(os.P_NOWAIT, '/usr/bin/touch', ['touch', 'touched'])",
        "os.execv('/usr/bin/touch', ['touch', 'touched'])",
        "os.execlp('touch', 'touch', 'touched')",
        "pty.spawn(['touch', 'touched'])",
        "await asyncio.create_subprocess_exec('touch', 'touched')",
        "await asyncio.create_subprocess_shell('touch touched')",
        "multiprocessing.get_context('spawn').Process(target=print).start()",
        "multiprocessing.get_context('forkserver').Process(target=print).start()",
        "from IPython.utils.process import system; system('touch touched')",
    ] {
        let text = ipybox.cell(call).await.error();
        let is_explained = text.contains("starting programs from Python is blocked. Use `!command`");
        assert!(is_explained, "{call}: {text}");
    }
    assert!(is_untouched(&place));
    assert_eq!(ipybox.cell("asked()").await.ok(), "[]");
    for (cell, output) in [
        ("!echo one", "one"),
        ("x = !echo two\nprint(x)", "['two']"),
        ("%%bash\necho three", "three"),
        ("%%script cat -\nfour", "four"),
        ("!{sys.executable} -c 'import subprocess; print(subprocess.call([\"true\"]))'", "0"),
        // A child that was only forked is under the same rules.
        ("p = multiprocessing.get_context('fork').Pool(1); p.apply(abs, [-5])", "5"),
        ("try: p.apply(os.system, ['touch touched'])\nexcept PermissionError: print('no')", "no"),
        ("p.terminate(); import platform; platform.processor() is None", "False"),
    ] {
        assert_eq!(ipybox.cell(cell).await.ok(), output, "{cell}");
    }
    assert_eq!(ipybox.cell("len(asked())").await.ok(), "5");
    assert!(is_untouched(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_command_that_runs_permits_nothing_else() {
    let place = Place::new();
    let mut ipybox = asking(&place, ONLY_ESCAPE).await;
    let code = r"
import os, subprocess, sys, time
seen = []
def try_meanwhile():
    while not os.path.exists('begun'):
        time.sleep(0.01)
    for words in (['touch', 'touched'], ['/bin/bash', '-c', COMMAND]):
        try:
            subprocess.run(words)
        except PermissionError:
            seen.append('blocked')
    open('tried', 'w').close()
COMMAND = 'touch begun; while [ ! -e tried ]; do sleep 0.01; done'
for run in (get_ipython().system, get_ipython().getoutput):
    thread = threading.Thread(target=try_meanwhile)
    thread.start()
    run(COMMAND)
    thread.join()
    os.remove('begun')
    os.remove('tried')
seen
";
    assert_eq!(ipybox.cell(code).await.ok(), "['blocked', 'blocked', 'blocked', 'blocked']");
    let code = r"
class Meddler:
    def write(self, text):
        try:
            subprocess.run(['touch', 'touched'])
        except PermissionError:
            seen.append('meddler')
    def flush(self):
        pass
seen, stdout = [], sys.stdout
sys.stdout = Meddler()
try:
    get_ipython().system('echo one')
finally:
    sys.stdout = stdout
seen[0]
";
    assert_eq!(ipybox.cell(code).await.ok(), "'meddler'");
    assert!(is_untouched(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn the_tool_server_answers_for_commands_and_nothing_else() {
    let place = Place::new();
    let mut ipybox = place.ipybox_with(&[]).await;
    let send = r"
import http.client, json, os
def send(body, token=None):
    connection = http.client.HTTPConnection(*os.environ['IPYBOX_TOOL_SERVER'].rsplit(':', 1))
    token = os.environ['IPYBOX_TOOL_SERVER_TOKEN'] if token is None else token
    headers = {'Content-Type': 'application/json', 'Authorization': 'Bearer ' + token}
    connection.request('POST', '/approve', json.dumps(body), headers)
    response = connection.getresponse()
    print(response.status, response.read().decode())
question = {'tool_name': 'shell', 'tool_args': {'cmd': 'touch touched'}}
";
    ipybox.cell(send).await.ok();
    assert_eq!(ipybox.cell("send(question)").await.ok(), r#"200 {"result":true}"#);
    assert_eq!(
        ipybox.cell("send({**question, 'server_name': 'ipybox'})").await.ok(),
        r#"200 {"result":true}"#
    );
    for (call, status, words) in [
        ("send(question, token='x')", "401", "token"),
        ("send({**question, 'tool_name': 'reset'})", "422", "expected `shell` or `shell_magic`"),
        ("send({**question, 'server_name': 'git'})", "422", "`ipybox`"),
        ("send({**question, 'approved': True})", "422", "unknown field `approved`"),
    ] {
        let text = ipybox.cell(call).await.ok();
        assert!(text.starts_with(status) && text.contains(words), "{call}: {text}");
    }
    assert!(is_untouched(&place));
    ipybox.stop().await;
}

#[tokio::test]
async fn escapes_are_not_required_unless_they_ask() {
    let place = Place::new();
    let mut ipybox = place.start(&["--require-shell-escape"]).await;
    assert_eq!(ipybox.ended().await.code(), Some(2));
    let is_named = || ipybox.log().contains("--approve-shell-cmds");
    crate::support::eventually("the missing flag is named", is_named).await;
}

/// Up to 2025-11-25: the client is asked by a request, and says nothing.
#[tokio::test]
async fn an_answer_does_not_wait_for_what_a_thread_asks() {
    let place = Place::new();
    let python = kernel_python();
    let flags = ["--python", python.to_str().unwrap(), "--approval", "ask", "--approve-shell-cmds"];
    let mut ipybox = place.start(&[&flags[..], &["--approval-timeout", "1000"]].concat()).await;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "it", "version": "0"},
    });
    ipybox.request("initialize", params).await.response().await.unwrap();
    ipybox.notify("notifications/initialized", json!({})).await;
    let code = "
import threading
asking = threading.Event()
def ask():
    asking.set()
    get_ipython().system('true')
threading.Thread(target=ask, daemon=True).start()
asking.wait(); threading.Event().wait(0.3)
print('done')";
    assert_eq!(ipybox.cell(code).await.ok(), "done");
    ipybox.stop().await;
}
