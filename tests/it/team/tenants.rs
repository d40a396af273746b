//! Users have nothing of each other.

use serde_json::json;

use super::support::{TeamPlace, user_directory};

#[tokio::test]
async fn users_have_sessions_workspaces_and_ids_of_their_own() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut clients = Vec::new();
    for token in &tokens {
        let mut client = place.begun(token).await;
        let own = client.cell("import os; own = os.getcwd(); print(os.getuid(), own)").await;
        let mut without = place.client(token);
        without.modern_cell("shared = 1").await;
        clients.push((client, own));
    }
    assert_ne!(clients[0].1, clients[1].1);
    let users = place.json(&["users"]);
    let is_root = rustix::process::geteuid().is_root();
    for ((client, own), user) in clients.iter_mut().zip(users.as_array().unwrap()) {
        let directory = user_directory(&place, &user["key"]);
        assert!(own.ends_with(directory.join("workspace").to_str().unwrap()), "{own}");
        if is_root {
            assert!(own.starts_with(&user["id"].to_string()), "{own}");
        }
        assert!(client.cell("shared").await.contains("NameError"));
        // One of a session, one of requests without.
        assert_eq!(place.json(&["sessions", user["key"].as_str().unwrap()]).as_array().unwrap().len(), 2);
    }
    let other = user_directory(&place, &users[1]["key"]);
    let (ann, _) = &mut clients[0];
    let paths = ["workspace", "home", "state", "audit"].map(|name| other.join(name));
    let paths = paths.into_iter().chain([place.path("tokens.json"), place.path("state/accounts")]);
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    let look = format!(
        "def look(path):\n    try: return os.listdir(path) if os.path.isdir(path) else open(path).read()\n\
         \x20   except OSError: return 'closed'\nprint(*map(look, {paths:?}), sep='\\n')"
    );
    let seen = ann.cell(&look).await;
    assert_eq!(seen.lines().filter(|line| *line == "closed").count(), 6, "{seen}");
    let listed = "print(*[name for place in ['/tmp', '/var/tmp', '/run', '/home', '/root'] if os.path.isdir(place) for name in os.listdir(place)])";
    let listed = ann.cell(listed).await;
    let way = place.path("state").iter().nth(2).unwrap().to_str().unwrap().to_owned();
    // What lies on the way to what is hers, and nothing beside it.
    let strange = |name: &&str| **name != way && !name.starts_with("ipybox");
    assert_eq!(listed.split_whitespace().filter(strange).count(), 0, "{listed}");
    let made = "import tempfile; file = tempfile.NamedTemporaryFile(); print(file.write(b'x'))";
    assert_eq!(ann.cell(made).await, "1");
    // Processes end while it looks.
    let processes = "def owner(process):
    try: return open(f'/proc/{process}/status').read().split('Uid:')[1].split()[0]
    except OSError: return None
sorted({owner(entry) for entry in os.listdir('/proc') if entry.isdigit()} - {None})";
    let seen = ann.cell(processes).await;
    assert_eq!(seen.matches('\'').count(), 2, "processes of others: {seen}");
    server.stop().await;
}

#[tokio::test]
async fn a_session_of_another_user_is_one_that_there_is_not() {
    let place = TeamPlace::new("");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let ann = place.begun(&tokens[0]).await;
    let mut answers = Vec::new();
    for session in [ann.session.clone().unwrap(), "8d1d6e3c-52ab-4e29-a5a0-0d3d6c36e1d1".to_owned()] {
        let mut thief = place.client(&tokens[1]);
        thief.session = Some(session);
        for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
            let response = thief.request(method).send().await.unwrap();
            answers.push((response.status(), response.text().await.unwrap()));
        }
        let response = thief.send("tools/call", json!({"name": "reset"})).await;
        answers.push((response.status(), response.text().await.unwrap()));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.0 == 404), "{answers:?}");
    // It is still there.
    let mut ann = ann;
    assert_eq!(ann.cell("1").await, "1");
    server.stop().await;
}

#[tokio::test]
async fn a_user_asks_too_much_and_others_do_not_wait() {
    let place = TeamPlace::new("[users]\nrequests_per_minute = 12\n");
    let tokens = ["ann", "bob"].map(|name| place.token(name));
    let server = place.serve();
    let mut ann = place.begun(&tokens[0]).await;
    let mut refused = None;
    for _ in 0..200 {
        let response = ann.send("tools/list", json!({})).await;
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("200 requests, of which 12 a minute may come");
    assert!(refused.headers().contains_key("retry-after"));
    let mut bob = place.begun(&tokens[1]).await;
    assert_eq!(bob.cell("1").await, "1");
    server.stop().await;
}

#[tokio::test]
async fn the_oldest_session_makes_room() {
    let place = TeamPlace::new("[users]\nmax_sessions = 2\n");
    let token = place.token("ann");
    let server = place.serve();
    let mut first = place.begun(&token).await;
    first.cell("x = 1").await;
    // Sessions are as old as their last seconds say.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let mut second = place.begun(&token).await;
    let mut third = place.begun(&token).await;
    assert_eq!(first.send("tools/list", json!({})).await.status(), 404);
    for client in [&mut second, &mut third] {
        assert!(client.cell("1").await.ends_with('1'));
    }
    server.stop().await;
}
