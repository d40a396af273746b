//! A client gives each of its conversations a name, by which a session is found.

use super::{Kept, kill};

#[tokio::test]
async fn each_window_gets_its_own_session_back_when_its_conversation_is_resumed() {
    let kept = Kept::new();
    let mut first = kept.client_of("first").await;
    first.cell("x = 'first'").await.ok();
    let mut second = kept.client_of("second").await;
    second.cell("x = 'second'").await.ok();
    kill(first).await;
    kept.all_left_but(1).await;
    kill(second).await;
    kept.all_left().await;
    // Neither of a client that says nothing, nor of a conversation that is new or a fork.
    for name in [None, Some("fork")] {
        let mut other = match name {
            None => kept.client(&[]).await,
            Some(name) => kept.client_of(name).await,
        };
        let text = other.cell("x").await.error();
        assert!(text.contains("begun in another conversation are kept, and not taken over"), "{text}");
        assert!(text.contains("NameError"), "{text}");
        other.stop().await;
        kept.all_left().await;
    }
    for name in ["first", "second", "first"] {
        let mut resumed = kept.client_of(name).await;
        let text = resumed.cell("print(x)").await.ok();
        assert!(text.starts_with("[This session was taken over") && text.ends_with(name), "{text}");
        kill(resumed).await;
        kept.all_left().await;
    }
    assert_eq!(kept.sessions().len(), 4);
    let mut nameless = kept.client(&[]).await;
    let text = nameless.cell("x").await.error();
    assert!(text.starts_with("[This session was taken over") && text.contains("NameError"), "{text}");
    nameless.stop().await;
}

/// A client may start a server of its own for a subagent, in the same conversation.
#[tokio::test]
async fn a_second_server_of_a_conversation_never_stands_in_for_the_first() {
    let kept = Kept::new();
    let mut main = kept.client_of("one").await;
    main.cell("x = 'main'").await.ok();
    let mut subagent = kept.client_of("one").await;
    assert!(subagent.cell("x").await.error().contains("NameError"));
    subagent.cell("x = 'subagent'").await.ok();
    subagent.stop().await;
    kept.all_left_but(1).await;
    main.stop().await;
    kept.all_left().await;
    let mut resumed = kept.client_of("one").await;
    let text = resumed.cell("print(x)").await.ok();
    assert!(text.ends_with("main"), "{text}");
    resumed.stop().await;
}

#[tokio::test]
async fn the_words_about_the_end_of_a_session_wait_for_its_conversation() {
    let kept = Kept::new();
    let mut client = kept.client_of("one").await;
    client.cell("x = 1").await.ok();
    client.stop().await;
    let id = kept.left_session().await["id"].as_str().unwrap().to_owned();
    assert!(kept.run(&["end", &id]).status.success());
    let mut other = kept.client_of("other").await;
    assert_eq!(other.cell("1").await.ok(), "1");
    other.stop().await;
    let mut resumed = kept.client_of("one").await;
    let text = resumed.cell("1").await.ok();
    assert!(text.contains("has ended, because the user ended it"), "{text}");
    resumed.stop().await;
}
