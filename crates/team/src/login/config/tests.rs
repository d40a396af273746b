use super::*;

const RESOURCE: &str = "[login]\nresource = \"https://ipybox.example/mcp\"\n";

/// The configuration of a team server, as far as this table of it.
#[derive(Deserialize)]
struct WithLogin {
    login: LoginConfig,
}

fn read(text: &str) -> Result<LoginConfig, String> {
    let read: Result<WithLogin, toml::de::Error> = toml::from_str(text);
    read.map(|read| read.login).map_err(|error| error.to_string())
}

/// The error names the line and says these things.
#[track_caller]
fn refused(text: &str, line: usize, said: &[&str]) {
    let error = read(&format!("{RESOURCE}{text}")).unwrap_err();
    let place = format!("TOML parse error at line {line}, ");
    assert!(error.starts_with(&place), "not at line {line}: {error}");
    for said in said {
        assert!(error.contains(said), "no {said:?} in {error}");
    }
}

#[test]
fn an_issuer_alone_is_enough() {
    let config = read(&format!("{RESOURCE}[[login.issuer]]\nissuer = \"https://id.example/\"")).unwrap();
    assert_eq!(config.resource.as_str(), "https://ipybox.example/mcp");
    assert_eq!(config.clock_skew, Duration::from_secs(60));
    let issuer = &config.issuers[0];
    assert_eq!(issuer.issuer.as_str(), "https://id.example/");
    assert_eq!(
        (issuer.claims.groups.as_slice(), issuer.claims.name.as_str()),
        (&["groups".to_owned()][..], "name")
    );
    let allowed = ["RS256", "ES256", "EdDSA"].map(|name| TokenAlgorithm::by_name(name).unwrap());
    assert!(allowed.iter().all(|algorithm| issuer.algorithms.contains(*algorithm)));
    assert!(!issuer.algorithms.contains(TokenAlgorithm::by_name("PS256").unwrap()));
}

#[test]
fn everything_can_be_said() {
    let config = read(
        r#"
        [login]
        resource = "https://ipybox.example/mcp"
        required_scopes = ["ipybox"]
        clock_skew = "5s"
        tokens_file = "tokens.json"
        [[login.issuer]]
        issuer = "https://id.example"
        audience = ["a", "b"]
        jwks_uri = "https://id.example/keys"
        algorithms = ["PS256"]
        claims = { groups = "/realm_access/roles", name = "nick" }
        [login.issuer.introspection]
        endpoint = "https://id.example/introspect"
        client_id = "ipybox"
        client_secret_env = "SECRET"
        authentication = "client_secret_post"
        [[login.issuer]]
        issuer = "https://other.example"
        audience = "c"
        "#,
    );
    let config = config.unwrap().in_directory(Path::new("/etc/ipybox"));
    assert_eq!(config.tokens_file.as_deref(), Some(Path::new("/etc/ipybox/tokens.json")));
    assert_eq!(config.issuers[0].audience.as_slice(), ["a", "b"]);
    assert_eq!(config.issuers[1].audience.as_slice(), ["c"]);
    let introspection = config.issuers[0].introspection.as_ref().unwrap();
    assert_eq!(introspection.authentication, ClientAuthentication::Post);
}

#[test]
fn a_mistake_is_named_with_its_line_and_its_remedy() {
    let issuer = |rest: &str| format!("[[login.issuer]]\nissuer = \"https://id.example\"\n{rest}");
    refused(&issuer("isuer = 1"), 5, &["unknown field `isuer`", "`jwks_uri`"]);
    refused(
        "[[login.issuer]]\nissuer = \"http://id.example\"",
        4,
        &["not encrypted; write a URL with `https`"],
    );
    refused("[[login.issuer]]\nissuer = \"https://id.example?a\"", 4, &["has a query"]);
    refused(
        &issuer("algorithms = [\"none\"]"),
        5,
        &["`none` is no algorithm with a public key; use some of RS256"],
    );
    refused(
        &issuer("algorithms = [\"RS256\", \"HS256\"]"),
        5,
        &["`HS256` is no algorithm with a public key"],
    );
    refused(&issuer("algorithms = []"), 5, &["name some, or leave the key out"]);
    refused(&issuer("audience = 1"), 5, &["a text, or a list of texts"]);
    refused(
        &issuer("[login.issuer.introspection]\nclient_id = \"a\""),
        5,
        &["missing field `client_secret_env`"],
    );
    refused("", 1, &["names nobody who could log in", "ipybox team user add"]);
    refused(&format!("{0}\n{0}", issuer("")), 1, &["has `https://id.example` twice"]);
    refused("tokens_file = \"t\"\nclock_skew = \"1h\"", 1, &["is 3600 s, at most 300 s make sense"]);
    refused("tokens_file = \"t\"\nrequired_scopes = [\"a b\"]", 1, &["has `a b`, which is no scope"]);
    let asked = "introspection = { client_id = \"a\", client_secret_env = \"S\" }";
    let two = format!("{}\n[[login.issuer]]\nissuer = \"https://b.example\"\n{asked}", issuer(asked));
    refused(&two, 1, &["`https://id.example` and `https://b.example`", "would be sent to both"]);
    let both = format!("{asked}\njupyterhub = {{ api = \"https://hub.example/hub/api\", service = \"a\" }}");
    refused(&issuer(&both), 1, &["has both `introspection` and `jupyterhub`; remove one"]);
}

#[test]
fn the_examples_of_the_readme_are_configurations() {
    let readme = include_str!("../../../README.md");
    let examples: Vec<&str> =
        readme.split("```toml\n").skip(1).filter_map(|text| text.split("```").next()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        read(example).unwrap_or_else(|error| panic!("{error}"));
    }
}
