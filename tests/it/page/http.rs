//! What is answered to whom.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{Visitor, client, start};
use crate::support::{PATIENCE, Place};

#[tokio::test]
async fn every_answer_keeps_others_out() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    for path in ["", "page.css", "page.js", "row.js", "waiting.js", "nothing"] {
        let response = client().get(format!("{url}{path}")).send().await.unwrap();
        check_headers(path, &response);
    }
    for path in ["enter", "events", "answer", "call", "image", "nothing"] {
        check_headers(path, &visitor.post(path, json!({})).await);
        check_headers(path, &client().post(format!("{url}{path}")).send().await.unwrap());
    }
    let html = client().get(&url).send().await.unwrap().text().await.unwrap();
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains(" style="), "{html}");
    ipybox.stop().await;
}

#[track_caller]
fn check_headers(path: &str, response: &reqwest::Response) {
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let policy = header("content-security-policy").unwrap_or_else(|| panic!("none at {path}"));
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{path}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(header(name).as_deref(), Some(value), "{name} at {path}");
    }
    assert!(header("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn both_secrets_the_origin_and_the_host_are_needed() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    let body = json!({"questions": [1], "answer": "once"});
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    let with = |name: &'static str, value: &str| {
        let mut request = visitor.request("answer", &body).build().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
        reqwest::RequestBuilder::from_parts(client(), request)
    };
    let without = |name: &'static str| {
        let mut request = visitor.request("answer", &body).build().unwrap();
        request.headers_mut().remove(name);
        reqwest::RequestBuilder::from_parts(client(), request)
    };
    assert_eq!(status(visitor.request("answer", &body)).await, 200);
    assert_eq!(status(without("cookie")).await, 401);
    assert_eq!(status(without("x-ipybox-key")).await, 401);
    assert_eq!(status(with("x-ipybox-key", "AAAA")).await, 401);
    assert_eq!(status(with("cookie", "ipybox-1=AAAA")).await, 401);
    assert_eq!(status(without("origin")).await, 403);
    for origin in ["null", "http://evil.example", "http://127.0.0.1:1", "http://localhost"] {
        assert_eq!(status(with("origin", origin)).await, 403, "{origin}");
    }
    for host in ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80"] {
        assert_eq!(status(with("host", host)).await, 421, "{host}");
        let page = client().get(&url).header("host", host);
        assert_eq!(status(page).await, 421, "{host}");
    }
    assert_eq!(status(with("sec-fetch-site", "same-site")).await, 403);
    assert_eq!(status(with("content-type", "text/plain")).await, 415);
    assert_eq!(status(with("content-type", "application/x-www-form-urlencoded")).await, 415);
    // Nothing that is not understood, and nothing too long.
    for body in
        [json!({}), json!({"questions": [1], "answer": "yes"}), json!({"questions": 1, "answer": "no"})]
    {
        assert_eq!(status(visitor.request("answer", &body)).await, 422, "{body}");
    }
    let long: Vec<u64> = (1_000_000..1_100_000).collect();
    assert_eq!(status(visitor.request("answer", &json!({"questions": long, "answer": "no"}))).await, 413);
    assert_eq!(status(client().get(format!("{url}events"))).await, 401);
    ipybox.stop().await;
}

#[tokio::test]
async fn a_code_opens_once_and_guesses_do_not_change_it() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor { client: client(), url: url.clone(), cookie: String::new(), key: String::new() };
    for tried in ["", "AAAA-AAAA", "22222222", &"x".repeat(100_000)] {
        assert_eq!(visitor.post("enter", json!({"code": tried})).await.status(), 403);
    }
    // The fifth is reported.
    assert_eq!(visitor.post("enter", json!({"code": "3333-3333"})).await.status(), 403);
    ipybox.logged("there were wrong codes for the page").await;
    let entered = Visitor::enter(&url, &code).await;
    assert_eq!(visitor.post("enter", json!({"code": code})).await.status(), 403);
    assert_eq!(entered.scene().await["event"], "all");
    ipybox.stop().await;
}

#[tokio::test]
async fn who_has_the_code_enters_while_others_guess() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let mut guessing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        let visitor = Visitor { client: client(), url, cookie: String::new(), key: String::new() };
        guessing.spawn(async move {
            loop {
                assert_eq!(visitor.post("enter", json!({"code": "4444-4444"})).await.status(), 403);
            }
        });
    }
    let log = ipybox.logged("there were wrong codes for the page").await;
    let entering = Visitor::enter(&url, &code);
    let entered = tokio::time::timeout(PATIENCE, entering).await.expect("it is its turn");
    assert_eq!(entered.scene().await["event"], "all");
    assert_eq!(log.matches("there were wrong codes").count(), 1, "{log}");
    guessing.shutdown().await;
    ipybox.stop().await;
}

/// Connects this often with half a request.
async fn half_requests(url: &str, count: usize) -> Vec<TcpStream> {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST /answer HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test]
async fn half_requests_keep_nobody_out() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let _early = half_requests(&url, 100).await;
    let mut visitor = Visitor::enter(&url, &code).await;
    let mut events = visitor.post("events", json!({})).await;
    events.chunk().await.unwrap().unwrap();
    let running = ipybox.start_cell("!echo decided").await;
    let question = visitor.question().await;
    let _late = half_requests(&url, 100).await;
    // A browser opens new connections, too, when it needs them.
    visitor.client = client();
    assert!(visitor.answer(&question, "once").await);
    assert!(running.answer().await.ok().contains("decided"));
    let event = async {
        let mut heard = String::new();
        while !heard.contains("\"decided\"") {
            heard.push_str(&String::from_utf8_lossy(&events.chunk().await.unwrap().unwrap()));
        }
    };
    tokio::time::timeout(PATIENCE, event).await.expect("the page still hears what happens");
    ipybox.stop().await;
}

#[tokio::test]
async fn the_cookie_is_for_the_page_alone() {
    let place = Place::new();
    let (ipybox, url, code) = start(&place, &[], json!({})).await;
    let visitor = Visitor { client: client(), url, cookie: String::new(), key: String::new() };
    let entered = visitor.post("enter", json!({"code": code.to_lowercase()})).await;
    let cookie = entered.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    ipybox.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_late_or_twice_changes_nothing() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "20"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    let running = ipybox.start_cell("!echo late").await;
    let question = visitor.question().await;
    assert!(question["left_ms"].as_u64().unwrap() <= 20_000, "{question}");
    let expired = running.answer().await;
    assert!(expired.text.contains("was not approved within 20 s"), "{}", expired.text);
    assert!(!visitor.answer(&question, "once").await);
    let decisions = visitor.scene().await["decisions"].clone();
    assert_eq!(decisions[0]["how"], "not answered in time", "{decisions}");
    assert_eq!(
        (&decisions[0]["tool"], &decisions[0]["arguments"][0]["parts"]),
        (&json!("shell"), &json!(["echo late"]))
    );
    // The first one of a later cell does not count as its run time either: it is asked for longer than the cell may run.
    let code = "try: get_ipython().system('echo late')\nexcept Exception as error: print('Not run:', error)";
    let later = ipybox.call("execute_ipython_cell", json!({"code": code, "timeout": 19})).await.ok();
    assert!(later.contains("Not run:"), "{later}");

    // The time does not run out while the answer is on its way.
    let (mut ipybox, url, code) = {
        ipybox.stop().await;
        start(&place, &["--approval-timeout", "300"], json!({})).await
    };
    let (visitor, running) = (Visitor::enter(&url, &code).await, ipybox.start_cell("!echo once").await);
    let question = visitor.question().await;
    assert!(visitor.answer(&question, "once").await);
    assert!(running.answer().await.ok().contains("once"));
    assert!(!visitor.answer(&question, "no").await);
    // An id that nobody was asked about is none.
    let unknown = json!({"row": {"id": 1_000_000}});
    assert!(!visitor.answer(&unknown, "always").await);
    ipybox.stop().await;
}

#[tokio::test]
async fn all_of_the_arguments_are_there_on_demand() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    super::register(&mut ipybox, &visitor).await;
    let code = "from mcptools.files import change\nchange.run(path='a\\u202eb', text='line\\n' * 50_000 + 'end\\u200b')";
    let running = ipybox.start_cell(code).await;
    let question = visitor.question().await;
    let row = &question["row"];
    assert_eq!((&row["server"], &row["tool"]), (&json!("files"), &json!("change")));
    assert_eq!(row["arguments"][0]["parts"], json!(["a", {"mark": r"\u202e"}, "b"]));
    assert_eq!(row["hints"], json!(["changes something", "may destroy something"]));
    let whole = visitor.post("call", json!({"question": row["id"]})).await.text().await.unwrap();
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let text = whole["arguments"].as_array().unwrap().iter().find(|each| each["name"] == "text").unwrap();
    assert_eq!(text["value"].as_str().unwrap(), "line\n".repeat(50_000) + r"end\u200b");
    assert!(visitor.answer(&question, "no").await);
    running.answer().await.error();
    ipybox.stop().await;
}

/// The first question that is not this one.
async fn next_question(visitor: &Visitor, earlier: &Value) -> Value {
    for _ in 0..6_000 {
        let question = visitor.question().await;
        if question["row"]["id"] != earlier["row"]["id"] {
            return question;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("nothing else is asked");
}

#[tokio::test]
async fn announced_calls_are_listed_and_granted_together() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    super::register(&mut ipybox, &visitor).await;
    let code = "from mcptools.files import change\nchange.run(path='/work/first.txt', mode='write')\n\
                for number in range(6): change.run(path=f'/work/out/{number}.txt', mode='write')\nprint('end')";
    let running = ipybox.start_cell(code).await;
    let question = next_question(&visitor, &json!(null)).await;
    let proposed = &question["row"]["grant"];
    assert_eq!(proposed["answer"], "allow up to 7 as listed in this cell");
    let lines: Vec<&str> = proposed["covers"].as_str().unwrap().lines().collect();
    assert_eq!(lines.len(), 2, "{question}");
    assert!(lines[0].ends_with("files.change(mode='write', path='/work/first.txt')"), "{question}");
    assert!(
        lines[1].starts_with("up to 6, ") && lines[1].contains("path=<a path within '/work/out'>"),
        "{question}"
    );
    assert!(visitor.answer(&question, "grant").await);
    assert!(running.answer().await.ok().contains("end"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_grant_is_given_listed_and_revoked() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    super::register(&mut ipybox, &visitor).await;
    let code = "import pathlib, time\nfrom mcptools.files import change\n\
                call = change.run\nfor number in range(6): call(path=f'/work/out/{number}.txt', mode='write')\n\
                while not pathlib.Path('go').exists(): time.sleep(0.01)\n\
                change.run(path='/work/out/last.txt', mode='write')";
    let running = ipybox.start_cell(code).await;
    let mut question = json!(null);
    for _ in 0..3 {
        question = next_question(&visitor, &question).await;
        assert!(question["row"]["grant"].is_null() && question["row"]["outside"].is_null(), "{question}");
        // There is none to give.
        assert!(!visitor.answer(&question, "grant").await);
        assert!(visitor.answer(&question, "once").await);
    }
    question = next_question(&visitor, &question).await;
    let proposed = &question["row"]["grant"];
    assert!(proposed["covers"].as_str().unwrap().contains("<a path within '/work/out'>"), "{question}");
    assert!(visitor.answer(&question, "grant").await);

    // The cell waits once the loop has used three.
    let mut grants = json!([]);
    while grants[0]["left"] != json!(47) {
        grants = visitor.scene().await["grants"].clone();
    }
    assert_eq!((&grants[0]["id"], &grants[0]["covers"]), (&json!(1), &proposed["covers"]), "{grants}");
    assert_eq!(visitor.post("revoke", json!({"grant": 1})).await.status(), 200);
    while grants != json!([]) {
        grants = visitor.scene().await["grants"].clone();
    }
    place.write("go", "");
    let last = next_question(&visitor, &question).await;
    assert_eq!(last["row"]["arguments"][0]["parts"], json!(["/work/out/last.txt"]), "{last}");
    assert!(visitor.answer(&last, "no").await);
    assert!(running.answer().await.error().contains("ApprovalRejectedError"));
    ipybox.stop().await;
}

#[tokio::test]
async fn a_batch_says_what_it_is_for() {
    let place = Place::new();
    let (mut ipybox, url, code) = start(&place, &["--approval-timeout", "300"], json!({})).await;
    let visitor = Visitor::enter(&url, &code).await;
    super::register(&mut ipybox, &visitor).await;
    let code = "import mcptools\nfrom mcptools.files import change\n\
                with mcptools.batch('tidy\\u200b up') as batch:\n    for number in range(3): change.run(path=f'/{number}')\n\
                print([type(result).__name__ for result in batch.results])";
    let running = ipybox.start_cell(code).await;
    let mut questions = json!([]);
    while questions.as_array().unwrap().len() < 3 {
        questions = visitor.scene().await["questions"].clone();
    }
    assert_eq!(questions[0]["row"]["batch"], r"tidy\u200b up");
    let ids: Vec<&Value> =
        questions.as_array().unwrap().iter().map(|question| &question["row"]["id"]).collect();
    visitor.post("answer", json!({"questions": ids[..2], "answer": "once"})).await;
    visitor.post("answer", json!({"questions": ids[2..], "answer": "no"})).await;
    let answer = running.answer().await.ok();
    assert!(answer.contains("['Result', 'Result', 'ApprovalRejectedError']"), "{answer}");
    ipybox.stop().await;
}
