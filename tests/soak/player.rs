//! Plays cells and checks their answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::footprint::Footprint;
use crate::kinds::{KINDS, Kind};
use crate::support::{Ipybox, Place, Reply, eventually, probe};

/// How long things take to settle before the measurement that others are compared with.
const PAUSE: Duration = Duration::from_secs(2);

/// How long things may take to settle: tokio keeps idle threads for ten seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// What surrounds the output of earlier cells.
const FRAME_OF_LATE_OUTPUT: [&str; 2] =
    ["[Output of earlier cells, after they had ended:]", "[End of the output of earlier cells]"];

/// A session and what is known of its kernel.
pub(crate) struct Player {
    place: Place,
    ipybox: Ipybox,
    random: XorShift,
    /// What the variable `kept` is, if it is.
    kept: Option<u64>,
    /// How many cells there were of each kind, and how long they took.
    played: BTreeMap<&'static str, (u32, Duration)>,
}

impl Player {
    pub(crate) async fn start() -> Self {
        let place = Place::new();
        let mut ipybox = place.ipybox().await;
        ipybox.register("probe", probe()).await.ok();
        Self { place, ipybox, random: XorShift(0x9e37_79b9_7f4a_7c15), kept: None, played: BTreeMap::new() }
    }

    pub(crate) async fn stop(self) {
        self.ipybox.stop().await;
    }

    /// Plays a cell of some kind.
    pub(crate) async fn play(&mut self, number: u64) {
        let (name, kind) = self.random.kind();
        let begin = Instant::now();
        self.play_kind(kind, number).await;
        let (count, time) = self.played.entry(name).or_default();
        *count += 1;
        *time += begin.elapsed();
    }

    async fn play_kind(&mut self, kind: Kind, n: u64) {
        match kind {
            Kind::Says(code, expected) => self.says(&filled(code, n), &filled(expected, n)).await,
            Kind::Fails(code, begin, end) => {
                let answer = self.ipybox.cell(&filled(code, n)).await;
                between(&own(&answer.error()), &filled(begin, n), &filled(end, n));
            }
            Kind::Floods(code, begin, end) => {
                let answer = self.ipybox.cell(&filled(code, n)).await;
                let text = own(&answer.ok());
                assert!(text.starts_with(&filled(begin, n)) && text.contains(end), "{text}");
            }
            Kind::Draws(code) => self.draws(&filled(code, n), n).await,
            Kind::Keeps => self.keeps(n).await,
            Kind::Together => self.together(n).await,
            Kind::Progresses => self.progresses(n).await,
            Kind::Cancelled(code) => self.cancelled(code, n).await,
            Kind::CancelledInQueue => self.cancelled_in_queue(n).await,
            Kind::TimesOut(code) => self.times_out(code).await,
            Kind::Exits => self.exits().await,
            Kind::Killed => self.killed(n).await,
            Kind::Reset => self.resets(n).await,
            Kind::Registers => drop(self.ipybox.register("probe", probe()).await.ok()),
        }
    }

    async fn says(&mut self, code: &str, expected: &str) {
        let answer = self.ipybox.cell(code).await;
        assert_eq!(own(&answer.ok()), expected, "{code}");
    }

    async fn draws(&mut self, code: &str, n: u64) {
        let text = own(&self.ipybox.cell(code).await.ok());
        between(&text, &format!("drawn {n}\nGenerated images:"), ")");
        let path = text.rsplit_once('(').unwrap().1.trim_end_matches(')');
        // Pictures are the user's to remove, and here is the user.
        std::fs::remove_file(path).unwrap();
    }

    async fn keeps(&mut self, n: u64) {
        let known = self.kept.map_or_else(|| "None".to_owned(), |kept| kept.to_string());
        self.says(&format!("print(globals().get('kept'))\nkept = {n}"), &known).await;
        self.kept = Some(n);
    }

    async fn together(&mut self, n: u64) {
        let mut replies = Vec::new();
        for part in 0..5 {
            replies.push(self.ipybox.start_cell(&format!("print('part {part} of {n}')")).await);
        }
        for (part, reply) in replies.into_iter().enumerate() {
            assert_eq!(own(&reply.answer().await.ok()), format!("part {part} of {n}"));
        }
    }

    async fn progresses(&mut self, n: u64) {
        let code = format!("for i in range(3): print('step', i, 'of {n}', flush=True)");
        let params = json!({
            "name": "execute_ipython_cell", "arguments": {"code": code}, "_meta": {"progressToken": n},
        });
        let answer = self.ipybox.request("tools/call", params).await.answer().await;
        assert_eq!(own(&answer.ok()), format!("step 0 of {n}\nstep 1 of {n}\nstep 2 of {n}"));
    }

    async fn cancelled(&mut self, code: &str, n: u64) {
        let running = self.start_running(code).await;
        self.ipybox.cancel(&running).await;
        self.says(&format!("'after', {n}"), &format!("('after', {n})")).await;
    }

    /// Starts a cell and waits until it runs.
    async fn start_running(&mut self, code: &str) -> Reply {
        let marker = self.place.workspace().join("running");
        let running = self.ipybox.start_cell(&format!("open('running', 'w').close()\n{code}")).await;
        eventually("the cell runs", || marker.exists()).await;
        std::fs::remove_file(marker).unwrap();
        running
    }

    async fn cancelled_in_queue(&mut self, n: u64) {
        let marker = self.place.workspace().join("cancelled");
        let code = format!(
            "import os, time\nwhile not os.path.exists('cancelled'): time.sleep(0.01)\nprint('slow {n}')"
        );
        let running = self.ipybox.start_cell(&code).await;
        let waiting = self.ipybox.start_cell(&format!("kept = 'cancelled {n}'\nwhile True: pass")).await;
        self.ipybox.cancel(&waiting).await;
        self.ipybox.has_begun_what_was_asked().await;
        std::fs::write(&marker, "").unwrap();
        assert_eq!(own(&running.answer().await.ok()), format!("slow {n}"));
        std::fs::remove_file(marker).unwrap();
        self.says(&format!("globals().get('kept') != 'cancelled {n}'"), "True").await;
    }

    async fn times_out(&mut self, code: &str) {
        let arguments = json!({"code": code, "timeout": 0.02});
        let text = self.ipybox.call("execute_ipython_cell", arguments).await.error();
        assert!(text.contains("timed out after 0.02 seconds") && text.contains("still there"), "{text}");
    }

    async fn exits(&mut self) {
        let text = self.ipybox.cell("import os\nos._exit(7)").await.error();
        assert!(text.contains("died") && text.contains("exit status: 7"), "{text}");
        self.is_revived(7).await;
    }

    /// The next cell works, and its answer reports that the kernel is another.
    async fn is_revived(&mut self, n: u64) {
        let text = own(&self.ipybox.cell(&format!("print('revived {n}')")).await.ok());
        let is_reported = text.starts_with("The kernel was started anew");
        assert!(is_reported && text.ends_with(&format!("revived {n}")), "{text}");
        self.kept = None;
    }

    async fn killed(&mut self, n: u64) {
        let id: i32 = own(&self.ipybox.cell("import os\nprint(os.getpid())").await.ok()).parse().unwrap();
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
        let entry = std::path::PathBuf::from(format!("/proc/{id}"));
        eventually("the kernel's death is noticed", || !entry.exists()).await;
        self.is_revived(n).await;
    }

    async fn resets(&mut self, n: u64) {
        let running = self.start_running("while True: pass").await;
        let waiting = self.ipybox.start_cell(&format!("print('never {n}')")).await;
        self.ipybox.reset().await;
        for reply in [running, waiting] {
            let text = reply.answer().await.error();
            assert!(text.contains("reset") && !text.contains("never"), "{text}");
        }
        self.kept = None;
    }

    /// What the server takes up after a reset and a tool call, once it has settled to be like `before`, if that happens.
    pub(crate) async fn quiet_footprint(&mut self, before: Option<&Footprint>) -> Footprint {
        self.ipybox.reset().await;
        self.kept = None;
        self.says("from mcptools.probe import echo\nprint(echo.run(text='quiet'))", "quiet").await;
        let deadline = Instant::now() + if before.is_some() { PATIENCE } else { PAUSE };
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let footprint = Footprint::of(&self.ipybox, &self.place);
            let is_over = Instant::now() > deadline;
            if is_over || before.is_some_and(|before| footprint.is_settled(before)) {
                return footprint;
            }
        }
    }

    /// How many cells there were of each kind, and how long one took.
    pub(crate) fn tally(&self) -> String {
        let line = |(name, (count, time)): (&&str, &(u32, Duration))| {
            format!("{name:>16} {count:>5} x {:>7.1} ms\n", time.as_secs_f64() * 1e3 / f64::from(*count))
        };
        self.played.iter().map(line).collect()
    }
}

fn filled(template: &str, number: u64) -> String {
    template.replace("{n}", &number.to_string())
}

/// A text without the answers of cancelled cells, without what threads and tasks of earlier cells said meanwhile,
/// wherever that came, and without empty lines.
fn own(text: &str) -> String {
    let text = text.rsplit_once("[End of the earlier answer]").map_or(text, |(_, own)| own);
    let mut parts = text.split("<late ");
    let mut own = parts.next().unwrap_or_default().to_owned();
    own.extend(parts.map(|part| part.split_once('>').unwrap().1));
    let is_frame = |line: &str| FRAME_OF_LATE_OUTPUT.contains(&line);
    let lines: Vec<&str> = own.lines().filter(|line| !line.trim().is_empty() && !is_frame(line)).collect();
    lines.join("\n")
}

#[track_caller]
fn between(text: &str, begin: &str, end: &str) {
    assert!(text.starts_with(begin) && text.ends_with(end), "not {begin:?} … {end:?}: {text}");
}

/// The same numbers in every run.
struct XorShift(u64);

impl XorShift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn kind(&mut self) -> (&'static str, Kind) {
        let total: u32 = KINDS.iter().map(|(weight, ..)| weight).sum();
        let mut place = u32::try_from(self.next() % u64::from(total)).unwrap();
        for &(weight, name, kind) in KINDS {
            if place < weight {
                return (name, kind);
            }
            place -= weight;
        }
        unreachable!("the place is below the total")
    }
}
