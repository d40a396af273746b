//! The prompts of people on a kept session.

use std::io;
use std::sync::Arc;

use tokio::time::Instant;

use super::greeting::{KeeperAnswer, PromptWish};
use super::keeper::{Keeper, PEOPLE, SocketStreams, answer};

impl Keeper {
    /// Serves a person's prompt. As long as one is there, the session does not end by itself.
    pub(super) async fn join(
        self: &Arc<Self>,
        wish: PromptWish,
        mut streams: SocketStreams,
    ) -> io::Result<()> {
        let output = &mut streams.output;
        if wish.program != self.likeness.program {
            let version = self.likeness.program.split(' ').next().unwrap_or_default();
            let why = format!(
                "it was begun by another ipybox, of version {version}; use that one, or end the session"
            );
            return answer(output, &KeeperAnswer::Refused { why }).await;
        }
        let is_admitted = self.people.send_if_modified(|people| {
            let is_admitted = *people < PEOPLE;
            *people += usize::from(is_admitted);
            is_admitted
        });
        if !is_admitted {
            let why = format!("{PEOPLE} prompts are attached to it already");
            return answer(output, &KeeperAnswer::Refused { why }).await;
        }
        let _present = Present(Arc::clone(self));
        let prompt = match self.serving.prompt(wish.is_copy).await {
            Ok(prompt) => prompt,
            Err(why) => return answer(output, &KeeperAnswer::Refused { why }).await,
        };
        answer(output, &KeeperAnswer::Joined).await?;
        Box::pin(prompt.serve(streams, wish.can_answer, self.stop.child_token())).await
    }
}

/// A person at a prompt, as long as this lives. The time that the session is kept for begins when the last one leaves.
struct Present(Arc<Keeper>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0
            .alone_since
            .send_if_modified(|since| since.as_mut().map(|since| *since = Instant::now()).is_some());
        self.0.people.send_modify(|people| *people -= 1);
    }
}
