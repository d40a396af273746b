//! A program on a pseudo-terminal, which Python makes: what is typed, and what is shown.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use super::{PATIENCE, environment, kernel_python};

/// Passes bytes on between its pipes and the terminal, which the program controls.
const PTY: &str = "\
import fcntl, os, pty, select, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 100, 0, 0))
ends = [0, terminal]
while True:
    ready, _, _ = select.select(ends, [], [])
    if 0 in ready:
        typed = os.read(0, 65536)
        if typed:
            os.write(terminal, typed)
        else:
            ends = [terminal]
    if terminal in ready:
        try:
            shown = os.read(terminal, 65536)
        except OSError:
            shown = b''
        if not shown:
            break
        while shown:
            shown = shown[os.write(1, shown):]
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

/// A program on a terminal.
pub(crate) struct Terminal {
    child: Child,
    input: ChildStdin,
    shown: Arc<Mutex<String>>,
    /// How much of it a test has seen.
    seen: usize,
}

impl Terminal {
    /// Starts ipybox with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(kernel_python())
            .args(["-c", PTY, env!("CARGO_BIN_EXE_ipybox")])
            .args(arguments)
            .env_clear()
            .envs(environment())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let shown = Arc::<Mutex<String>>::default();
        let (mut output, text) = (child.stdout.take().unwrap(), Arc::clone(&shown));
        tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut piece).await {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        });
        let input = child.stdin.take().unwrap();
        Self { child, input, shown, seen: 0 }
    }

    /// Types text; a line ends with `\r`.
    pub(crate) async fn types(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    /// Waits until these words are shown after what was waited for before.
    pub(crate) async fn shows(&mut self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.shown.lock().unwrap()[self.seen..].find(words);
            if let Some(found) = found {
                self.seen += found + words.len();
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{words:?} is not shown after {:?}: {:?}",
                self.seen,
                self.all()
            );
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// All that was shown.
    pub(crate) fn all(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits for the program's end.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it does not end").unwrap()
    }
}
