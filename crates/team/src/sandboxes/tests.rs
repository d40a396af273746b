use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::io::BufReader;

use super::*;

/// A cluster in memory: the claims that there are.
#[derive(Default)]
struct Memory {
    claims: Arc<Mutex<Vec<KnownClaim>>>,
}

struct MemoryClaim {
    claims: Arc<Mutex<Vec<KnownClaim>>>,
    name: String,
}

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

impl MemoryClaim {
    fn is_there(&self) -> bool {
        self.claims.lock().iter().any(|claim| claim.name == self.name)
    }
}

#[async_trait]
impl KeptClaim for MemoryClaim {
    async fn has_volumes(&self) -> Result<bool, String> {
        Ok(true)
    }

    async fn suspend(&self) -> Result<(), String> {
        if self.is_there() { Ok(()) } else { Err("there is no such\nsandbox".to_owned()) }
    }

    async fn wake(&self, report: &ClaimReport) -> Result<Option<IpAddr>, String> {
        report("waking");
        tokio::task::yield_now().await;
        Ok(self.is_there().then_some(ADDRESS))
    }

    async fn gone(&self, address: IpAddr) -> Option<String> {
        (address != ADDRESS).then(|| "another pod".to_owned())
    }

    async fn release(self: Box<Self>) -> bool {
        self.claims.lock().retain(|claim| claim.name != self.name);
        true
    }
}

#[async_trait]
impl SandboxClaimer for Memory {
    async fn find_credentials(&self) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }

    async fn claim(
        &self,
        pool: &str,
        owner: &SandboxOwner,
        report: &ClaimReport,
    ) -> Result<TakenSandbox, String> {
        report(&format!("claiming from {pool}"));
        tokio::task::yield_now().await;
        let name = format!("claim-{}", self.claims.lock().len());
        self.claims.lock().push(KnownClaim { name: name.clone(), owner: owner.clone() });
        let place = SandboxPlace {
            claim: name.clone(),
            sandbox: "s".to_owned(),
            namespace: "n".to_owned(),
            address: ADDRESS,
        };
        let claims = Arc::clone(&self.claims);
        Ok(TakenSandbox { place, claim: Box::new(MemoryClaim { claims, name }) })
    }

    async fn resume(&self, claim: &str, owner: &SandboxOwner) -> Result<Option<Box<dyn KeptClaim>>, String> {
        let claims = Arc::clone(&self.claims);
        let is_there = claims.lock().iter().any(|known| known.name == claim && known.owner == *owner);
        let name = claim.to_owned();
        Ok(is_there.then(|| Box::new(MemoryClaim { claims, name }) as Box<dyn KeptClaim>))
    }

    async fn list(&self) -> Result<Vec<KnownClaim>, String> {
        Ok(self.claims.lock().clone())
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn sandboxes(claims: &Arc<Mutex<Vec<KnownClaim>>>) -> Arc<TeamSandboxes> {
    let table = toml::from_str("pool = \"python\"\ngpu = { pool = \"gpu\", max = 1 }").unwrap();
    let resource = SecureUrl::try_from("https://ipybox.example/mcp".to_owned()).unwrap();
    let opened = TeamSandboxes::open(&table, 2, &resource, |_| Ok(Arc::new(Memory::default())));
    let mut sandboxes = opened.unwrap().unwrap();
    sandboxes.claimer = Arc::new(Memory { claims: Arc::clone(claims) });
    Arc::new(sandboxes)
}

fn account(key: &str) -> TeamAccount {
    let account = serde_json::json!({
        "key": key, "issuer": "local", "subject": key, "name": key, "id": null, "created": 0, "seen": 0,
    });
    serde_json::from_value(account).unwrap()
}

/// A connection of a user's session.
struct Connection {
    input: BufReader<tokio::io::ReadHalf<tokio::io::DuplexStream>>,
    output: tokio::io::WriteHalf<tokio::io::DuplexStream>,
    hearing: tokio::task::JoinHandle<()>,
}

impl Connection {
    fn of(sandboxes: &Arc<TeamSandboxes>, user: &str) -> Self {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (sandboxes, account) = (Arc::clone(sandboxes), account(user));
        let hearing = tokio::spawn(async move {
            let (input, output) = tokio::io::split(theirs);
            sandboxes.hear(BufReader::new(input), output, &account).await.unwrap();
        });
        let (input, output) = tokio::io::split(ours);
        Self { input: BufReader::new(input), output, hearing }
    }

    /// The last answer to a question.
    async fn ask(&mut self, question: &str) -> String {
        self.output.write_all(format!("{question}\n").as_bytes()).await.unwrap();
        loop {
            let answer = line(&mut self.input, 4096).await.unwrap().unwrap();
            let answer = String::from_utf8(answer).unwrap();
            if !answer.starts_with("{\"report\":") {
                return answer;
            }
        }
    }

    async fn end(mut self) {
        self.output.shutdown().await.unwrap();
        self.hearing.await.unwrap();
    }
}

#[tokio::test]
async fn a_user_has_so_many_sandboxes_of_a_kernel_also_after_the_server_was_killed() {
    let claims = Arc::default();
    let server = sandboxes(&claims);
    let gpu = r#"{"claim":{"kernel":"gpu"}}"#;
    let mut first = Connection::of(&server, "ann");
    assert!(first.ask(gpu).await.starts_with(r#"{"sandbox":{"claim":"claim-0","sandbox":"s""#));
    let refused = Connection::of(&server, "ann").ask(gpu).await;
    for words in ["with the kernel `gpu`", "`kernels.gpu.max`", "allows at a time: 1", "`reset`"] {
        assert!(refused.contains(words), "{refused}");
    }
    // Another kernel, and another user.
    let mut other = Connection::of(&server, "ann");
    assert!(other.ask(r#"{"claim":{}}"#).await.starts_with(r#"{"sandbox":"#));
    let mut bob = Connection::of(&server, "bob");
    assert!(bob.ask(gpu).await.starts_with(r#"{"sandbox":"#));
    bob.end().await;
    assert_eq!(claims.lock().len(), 2);
    // Killed: nothing is released.
    first.hearing.abort();
    other.hearing.abort();
    drop((first, other));
    let server = sandboxes(&claims);
    assert!(Connection::of(&server, "ann").ask(gpu).await.contains("`kernels.gpu.max`"));
    let resume = r#"{"resume":{"claim":"claim-0","kernel":"gpu"}}"#;
    assert_eq!(
        Connection::of(&server, "bob").ask(resume).await,
        r#"{"refused":"there is no claim `claim-0` of this user"}"#
    );
    let mut again = Connection::of(&server, "ann");
    assert_eq!(again.ask(resume).await, r#"{"resumed":"claim-0"}"#);
    assert!(Connection::of(&server, "ann").ask(gpu).await.contains("`kernels.gpu.max`"));
    again.end().await;
    let mut next = Connection::of(&server, "ann");
    assert!(next.ask(gpu).await.starts_with(r#"{"sandbox":"#));
    next.end().await;
}

#[tokio::test]
async fn a_session_asks_about_its_sandbox_as_long_as_its_claim_is_kept() {
    let claims = Arc::default();
    let server = sandboxes(&claims);
    let mut session = Connection::of(&server, "ann");
    assert!(session.ask(r#"{"claim":{}}"#).await.starts_with(r#"{"sandbox":"#));
    for (question, answer) in [
        (r#""has_volumes""#, r#"{"has_volumes":true}"#),
        (r#""suspend""#, r#""suspended""#),
        (r#""wake""#, r#"{"awake":"127.0.0.2"}"#),
        (r#"{"gone":"127.0.0.2"}"#, r#"{"gone":null}"#),
        (r#"{"gone":"127.0.0.3"}"#, r#"{"gone":"another pod"}"#),
    ] {
        assert_eq!(session.ask(question).await, answer);
    }
    let taken = std::mem::take(&mut *claims.lock());
    assert_eq!(session.ask(r#""suspend""#).await, r#"{"refused":"there is no such\nsandbox"}"#);
    assert_eq!(session.ask(r#""wake""#).await, r#""missing""#);
    *claims.lock() = taken;
    session.end().await;
    assert!(claims.lock().is_empty());
    // A session that ends before the answer, and one that asks something else.
    for question in ["\"wake\"\n", "{\"claim\":{}}\n"] {
        let mut session = Connection::of(&server, "ann");
        assert!(session.ask(r#"{"claim":{}}"#).await.starts_with(r#"{"sandbox":"#));
        session.output.write_all(question.as_bytes()).await.unwrap();
        session.output.shutdown().await.unwrap();
        session.hearing.await.ok();
        assert!(claims.lock().is_empty(), "{question}");
    }
}

#[tokio::test]
async fn claims_that_the_cluster_has_ended_count_no_more() {
    let owner = SandboxOwner { user: "ann".to_owned(), kernel: Some("gpu".to_owned()) };
    let claims = Arc::new(Mutex::new(vec![KnownClaim { name: "left".to_owned(), owner }]));
    let server = sandboxes(&claims);
    let gpu = r#"{"claim":{"kernel":"gpu"}}"#;
    assert!(Connection::of(&server, "ann").ask(gpu).await.contains("`kernels.gpu.max`"));
    claims.lock().clear();
    let mut session = Connection::of(&server, "ann");
    assert!(session.ask(gpu).await.starts_with(r#"{"sandbox":"#));
    session.end().await;
    assert!(claims.lock().is_empty());
}

#[tokio::test]
async fn a_kernel_that_there_is_not_is_refused_with_those_that_there_are() {
    let server = sandboxes(&Arc::default());
    let refused = Connection::of(&server, "ann").ask(r#"{"claim":{"kernel":"tpu"}}"#).await;
    assert!(refused.contains("no kernel of the name `tpu`; there is `gpu`"), "{refused}");
}

#[test]
fn a_server_is_named_by_a_value_of_a_label() {
    let named = |url: &str| instance(&SecureUrl::try_from(url.to_owned()).unwrap());
    assert_eq!(named("https://ipybox.example/mcp"), "ipybox.example");
    assert_eq!(named("http://127.0.0.1:8931/mcp"), "127.0.0.1_8931");
    let hash = named("http://[::1]:8931/mcp");
    assert!(hash.len() == 20 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
}

#[test]
fn a_file_is_open_to_all_if_its_directories_are() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "secret").unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(directory.path(), 0o755);
    set(&file, 0o600);
    assert!(!is_open_to_all(&file));
    set(&file, 0o644);
    assert!(is_open_to_all(&file));
    set(directory.path(), 0o700);
    assert!(!is_open_to_all(&file));
}
