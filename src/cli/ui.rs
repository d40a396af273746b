//! `ipybox ui`: a page in the browser on which the calls of a kept session are decided.

use std::io::Write as _;

use anyhow::Context as _;
use ipybox::lasting::{self, JoinedKernel};
use ipybox::one_line;
use ipybox::page::{ApprovalPage, PageNews};

use super::multi_threaded;
use super::session_args::JoinArgs;

/// Serves the page until it is interrupted, or the session ends.
pub(crate) fn run(args: JoinArgs) -> anyhow::Result<()> {
    let joined = lasting::join(args.session.as_deref(), args.state_dir, JoinedKernel::Shared, true, false)?;
    let runtime = multi_threaded()?;
    let id = joined.id.clone();
    let workspace = joined.workspace.display().to_string();
    let served: anyhow::Result<()> = runtime.block_on(async {
        let stream = joined.into_stream().context("speak to the session")?;
        let page = ApprovalPage::open(stream, Some(id.clone()), |news| print(&in_words(&news))).await?;
        print(&format!(
            "The calls of session {id} ({}) are decided here:\n\n  page  {}\n  code  {}\n\n\
             The page asks for the code, once. Ctrl-C ends the page, and the session goes on.",
            one_line(&workspace),
            page.url(),
            page.code()
        ));
        tokio::select! {
            () = page.ended() => anyhow::bail!("go on: the session `{id}` has ended"),
            interrupted = tokio::signal::ctrl_c() => interrupted.context("handle signals"),
        }
    });
    runtime.shutdown_background();
    served
}

fn in_words(news: &PageNews) -> String {
    match news {
        PageNews::Entered(code) => {
            format!(
                "A browser has the page now. If that was not you, press Ctrl-C. Code for another browser: {code}"
            )
        }
        PageNews::Guessed => "There were wrong codes. If they were not yours, another program guesses; \
                          the code stays the same."
            .to_owned(),
        PageNews::Question(call) => format!("A call waits: {}", one_line(call)),
        _ => String::new(),
    }
}

fn print(text: &str) {
    let mut stdout = super::stdout();
    // The page goes on for a user whose terminal is gone; its end is a signal.
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).ok();
}
