//! Kernels after a reset and of further sessions: forks of a process that has run no code.

use std::collections::BTreeMap;

use ipybox::KernelClient;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::leaks::{HELD, no_more_than, numbers};
use crate::support::{Ipybox, Place, eventually, is_running, kernel_python, probe};

/// The processes that run a kernel's script from below this place: their id, and that of their parent.
fn scripts(place: &Place) -> Vec<(i32, i32)> {
    let temporary = place.temporary().canonicalize().unwrap();
    let of_place = |id: i32| {
        let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let leads = fields[2] == id.to_string() && fields[0] != "Z";
        let is_script = command.contains(temporary.to_str()?) && command.contains("/boot.py");
        (leads && is_script).then(|| (id, fields[1].parse().unwrap()))
    };
    let ids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(of_place).collect()
}

/// The template of this ipybox, which is no child of it and of no other kernel.
fn template(place: &Place, ipybox: i32) -> Option<i32> {
    let scripts = scripts(place);
    let is_kernel = |parent: i32| parent == ipybox || scripts.iter().any(|(id, _)| *id == parent);
    scripts.iter().find(|(_, parent)| !is_kernel(*parent)).map(|(id, _)| *id)
}

/// States of kernels would be taken for templates.
async fn without_states(place: &Place, flags: &[&str]) -> Ipybox {
    place.ipybox_with(&[&["--undo-memory", "0"], flags].concat()).await
}

async fn template_of(place: &Place, ipybox: &Ipybox) -> i32 {
    let mut found = None;
    eventually("there is a template", || {
        found = template(place, ipybox.id());
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// The template, which has forked a kernel: before, it may not be whole.
async fn used_template_of(place: &Place, ipybox: &mut Ipybox) -> i32 {
    let template = template_of(place, ipybox).await;
    reset(ipybox).await;
    assert_eq!(parent(ipybox).await, template);
    template
}

async fn parent(ipybox: &mut Ipybox) -> i32 {
    ipybox.cell("import os\nos.getppid()").await.ok().lines().last().unwrap().parse().unwrap()
}

async fn reset(ipybox: &mut Ipybox) {
    ipybox.call("reset", json!({})).await.ok();
}

#[tokio::test]
async fn kernels_after_a_reset_and_of_further_sessions_are_forks_of_what_has_run_nothing() {
    let place = Place::new();
    let mut ipybox = without_states(&place, &[]).await;
    let template = template_of(&place, &ipybox).await;
    assert_eq!(parent(&mut ipybox).await, ipybox.id());
    ipybox.cell("x = 1").await.ok();
    reset(&mut ipybox).await;
    assert_eq!(parent(&mut ipybox).await, template);
    assert!(ipybox.cell("x").await.error().contains("NameError"));
    let numbers = "import random, os\nrandom.random(), os.environ['IPYBOX_TOOL_SERVER_TOKEN']";
    let first = ipybox.cell(numbers).await.ok();
    // The template tells how its kernels end.
    let death = ipybox.cell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").await.error();
    assert!(death.contains("signal: 9 (SIGKILL)"), "{death}");
    assert_eq!(parent(&mut ipybox).await, template);
    let death = ipybox.cell("import os; os._exit(3)").await.error();
    assert!(death.contains("exit status: 3"), "{death}");
    let second = ipybox.cell(numbers).await.ok();
    assert_ne!(first, second);
    let new = json!({"code": numbers, "session": "new"});
    let text = ipybox.call("execute_ipython_cell", new).await.ok();
    let handle = text.split('`').nth(1).unwrap().to_owned();
    assert!(!text.ends_with(&second));
    // Files of IPython are each session's own.
    let own = "import os, sys\n(os.getppid(), os.environ['IPYTHONDIR'], get_ipython().profile_dir.location, \
               os.path.realpath(os.getcwd()), [place for place in sys.path if 'ipybox-' in place])";
    let (main, further) = (
        ipybox.cell(own).await.ok(),
        ipybox.call("execute_ipython_cell", json!({"code": own, "session": handle})).await.ok(),
    );
    assert!(
        further.contains(&format!("({template},")) && main.starts_with(&format!("({template},")),
        "{further}"
    );
    let directory = main.split("'").nth(1).unwrap().strip_suffix("/ipython").unwrap();
    assert!(!further.contains(directory) && main.matches(directory).count() == 4, "{main}\n{further}");
    ipybox.stop().await;
    eventually("no kernel and no template is left", || scripts(&place).is_empty()).await;
}

/// Code that shows all that a kernel begins with.
const SURROUNDINGS: &str = "
import atexit, gc, json, os, resource, signal, sys, threading, warnings
shell = get_ipython()
private = os.path.dirname(os.environ['IPYTHONDIR'])
def place(text): return text.replace(private, 'PRIVATE')
known = {'ipybox_branch', 'ipybox_obstacles', 'ipybox_template', 'fcntl', 'weakref'}
report = json.dumps({
    'variables': {name: place(value) for name, value in os.environ.items() if name not in ('IPYBOX_TOOL_SERVER', 'IPYBOX_TOOL_SERVER_TOKEN')},
    'path': [place(each) for each in sys.path],
    'modules': sorted(set(sys.modules) - known),
    'names': sorted(shell.user_ns),
    'signals': [str(signal.getsignal(number)).split(' at ')[0] for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE)],
    'blocked': sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    'wakeup': signal.set_wakeup_fd(-1),
    'numbers': sorted(map(int, os.listdir('/proc/self/fd')))[:-1],
    'directory': os.getcwd(),
    'limits': [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith('RLIMIT')],
    'leads': [os.getpid() == os.getsid(0), os.getpid() == os.getpgid(0)],
    'exits': atexit._ncallbacks(),
    'threads': threading.active_count(),
    'is_main': threading.current_thread() is threading.main_thread(),
    'arguments': sys.argv,
    'count': shell.execution_count,
    'filters': len(warnings.filters),
    'collects': [gc.isenabled(), gc.get_threshold()],
    'umask': os.umask(0),
    'ipython': place(shell.ipython_dir), 'profile': place(shell.profile_dir.location),
    'hooks': [type(each).__name__ for each in sys.meta_path],
    'dumpable': os.stat('/proc/self/mem').st_uid == os.getuid(),
})
with open('FILE', 'w') as file: print(report, file=file)
";

#[tokio::test]
async fn a_forked_kernel_begins_like_one_from_scratch() {
    let place = Place::new();
    let mut ipybox = without_states(&place, &[]).await;
    template_of(&place, &ipybox).await;
    let code = |file: &str| SURROUNDINGS.replace("FILE", file);
    ipybox.cell(&code("scratch")).await.ok();
    reset(&mut ipybox).await;
    ipybox.cell(&code("reset")).await.ok();
    let new = json!({"code": code("new"), "session": "new"});
    ipybox.call("execute_ipython_cell", new).await.ok();
    ipybox.stop().await;
    let read = |file: &str| serde_json::from_str::<BTreeMap<String, Value>>(&place.read(file)).unwrap();
    let scratch = read("scratch");
    for forked in [read("reset"), read("new")] {
        for (name, value) in &scratch {
            assert_eq!(&forked[name], value, "{name}");
        }
    }
}

#[tokio::test]
async fn whatever_has_changed_makes_a_kernel_from_scratch() {
    let place = Place::new();
    let modules = place.temporary().join("modules");
    std::fs::create_dir(&modules).unwrap();
    let python = kernel_python();
    let variables = [("KERNEL_ENV_PYTHONPATH", modules.to_str().unwrap())];
    let flags = ["--python", python.to_str().unwrap(), "--undo-memory", "0"];
    let mut ipybox = place.start_with(&flags, &variables).await;
    ipybox.initialize().await;

    // Modules have been installed.
    used_template_of(&place, &mut ipybox).await;
    std::fs::write(modules.join("sitecustomize.py"), "import os\nos.environ['CUSTOMIZED'] = '1'").unwrap();
    reset(&mut ipybox).await;
    assert_eq!(parent(&mut ipybox).await, ipybox.id());
    assert_eq!(ipybox.cell("os.environ['CUSTOMIZED']").await.ok(), "'1'");
    reset(&mut ipybox).await;
    // From then on there is another template.
    let killed = template_of(&place, &ipybox).await;
    reset(&mut ipybox).await;
    assert_eq!(parent(&mut ipybox).await, killed);
    assert_eq!(ipybox.cell("os.environ['CUSTOMIZED']").await.ok(), "'1'");

    // It has been killed; its kernels go on.
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    eventually("the template is gone", || !is_running(killed)).await;
    let death = ipybox.cell("x = 1\nos._exit(3)").await.error();
    assert!(death.contains("its exit status is unknown"), "{death}");
    assert_eq!(parent(&mut ipybox).await, ipybox.id());

    // It does not answer.
    reset(&mut ipybox).await;
    let stopped = used_template_of(&place, &mut ipybox).await;
    kill(Pid::from_raw(stopped), Signal::SIGSTOP).unwrap();
    reset(&mut ipybox).await;
    assert_eq!(parent(&mut ipybox).await, ipybox.id());
    eventually("the template that was stopped is gone", || !is_running(stopped)).await;
    ipybox.stop().await;
}

#[tokio::test]
async fn without_a_template_every_kernel_starts_from_scratch() {
    let place = Place::new();
    let mut ipybox = without_states(&place, &["--cold-start"]).await;
    reset(&mut ipybox).await;
    assert_eq!(parent(&mut ipybox).await, ipybox.id());
    assert_eq!(template(&place, ipybox.id()), None);
    ipybox.stop().await;
}

#[tokio::test]
async fn the_tokens_that_a_template_knows_are_worth_nothing() {
    let place = Place::new();
    let mut ipybox = without_states(&place, &[]).await;
    ipybox.register("probe", probe()).await.ok();
    let template = template_of(&place, &ipybox).await;
    let call = "from mcptools.probe import echo\nprint(echo.run(echo.Params(text='hi')))";
    assert_eq!(ipybox.cell(call).await.ok(), "hi");
    // A further session, beside the first kernel that the template was forked from.
    let steal = format!(
        "{call}\nimport http.client, os\nvariables = dict(line.split('=', 1) for line in \
         open('/proc/{template}/environ').read().split('\\0') if '=' in line)\n\
         host, _, port = variables['IPYBOX_TOOL_SERVER'].rpartition(':')\n\
         connection = http.client.HTTPConnection(host, int(port))\n\
         token = variables['IPYBOX_TOOL_SERVER_TOKEN']\n\
         connection.request('POST', '/run', '{{}}', {{'Authorization': f'Bearer {{token}}'}})\n\
         print(connection.getresponse().status)"
    );
    let text = ipybox.call("execute_ipython_cell", json!({"code": steal, "session": "new"})).await.ok();
    assert!(text.ends_with("hi\n401"), "{text}");
    assert_eq!(ipybox.cell(call).await.ok(), "hi");
    ipybox.stop().await;
}

#[tokio::test]
async fn a_template_and_its_kernels_end_with_ipybox() {
    let place = Place::new();
    let mut ipybox = without_states(&place, &[]).await;
    let template = template_of(&place, &ipybox).await;
    reset(&mut ipybox).await;
    let kernel = ipybox.cell("import os; os.getpid()").await.ok().parse::<i32>().unwrap();
    assert!(is_running(template) && is_running(kernel));
    ipybox.signal(Signal::SIGKILL);
    eventually("both end with ipybox", || !is_running(template) && !is_running(kernel)).await;
    let left = || {
        std::fs::read_dir(place.temporary())
            .unwrap()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("ipybox-"))
    };
    eventually("its files are removed", || !left()).await;
}

/// The number of forks of one template.
const FORKS: usize = 600;

#[tokio::test]
async fn hundreds_of_forks_leave_nothing_behind() {
    let place = Place::new();
    let client =
        KernelClient::builder().working_dir(place.workspace()).python(kernel_python()).start().await.unwrap();
    let text = async |code: &str| client.execute(code).await.unwrap().text.unwrap_or_default();
    text(HELD).await;
    client.copy().await.unwrap().stop().await;
    let before = numbers(&text("held()").await);
    assert_eq!(before[2], 0, "the kernel has children: {before:?}");
    let mut copies = Vec::new();
    for _ in 0..FORKS {
        // A few live at a time.
        copies.push(client.copy().await.unwrap());
        if copies.len() == 4 {
            for copy in copies.drain(..) {
                copy.stop().await;
            }
        }
    }
    no_more_than(before, async || text("held()").await).await;
    client.stop().await;
}
