//! Parameters with their placeholders filled, and the secrets that came in with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::connections::mcp_client::failure::Error;
use crate::connections::mcp_client::parameters::{
    GrantKind, HttpParameters, HttpTransport, LoginMethod, ParametersError, StdioParameters, WORKSPACE,
    check_url,
};
use crate::connections::oauth::{self, IdentityProvider, MachineClient, SigningAlgorithm, TokenGrant};
use crate::ground::env::{Variables, is_for_a_secret};
use crate::ground::text::Secrets;

/// A stdio server, ready to be started. It has no `Debug`: it holds secrets.
pub(crate) struct FilledStdio {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) trusts_workspace: bool,
}

/// An HTTP server, ready to be connected to. It has no `Debug`: it holds secrets.
pub(crate) struct FilledHttp {
    pub(crate) url: Url,
    pub(crate) transport: HttpTransport,
    pub(crate) headers: HeaderMap,
    /// The settings of the login; `None` if the user has turned it off, or gives the header `Authorization`.
    pub(crate) login: Option<oauth::OauthSettings>,
}

impl FilledStdio {
    pub(crate) fn fill(
        parameters: &StdioParameters,
        variables: &Variables,
        workspace: &Path,
    ) -> Result<(Self, Secrets), Error> {
        let workspace = workspace.to_string_lossy();
        let mut filler = Filler { variables, workspace: Some(&workspace), used: BTreeMap::new() };
        let command = filler.fill("command", &parameters.command, PlaceholderSpot::Program)?;
        let mut args = Vec::with_capacity(parameters.args.len());
        for (index, argument) in parameters.args.iter().enumerate() {
            args.push(filler.fill(&format!("args[{index}]"), argument, PlaceholderSpot::Argument)?);
        }
        let env = filler.fill_values("env", &parameters.env, PlaceholderSpot::of_variable)?;
        let cwd = parameters
            .cwd
            .as_deref()
            .map(|cwd| filler.fill("cwd", cwd, PlaceholderSpot::Program))
            .transpose()?;
        let trusts_workspace = parameters.trusts_workspace;
        let filled = Self { command, args, env, cwd: cwd.map(PathBuf::from), trusts_workspace };
        Ok((filled, filler.into_secrets()))
    }
}

impl FilledHttp {
    pub(crate) fn fill(parameters: &HttpParameters, variables: &Variables) -> Result<(Self, Secrets), Error> {
        let mut filler = Filler { variables, workspace: None, used: BTreeMap::new() };
        let text = filler.fill("url", &parameters.url, PlaceholderSpot::of_url(&parameters.url))?;
        let url = check_url(&text)?;
        let transport = parameters.transport.or_else(|| HttpTransport::from_url(&text));
        let transport = transport.ok_or(ParametersError::UndecidedTransport)?;
        let mut headers = HeaderMap::new();
        for (name, value) in filler.fill_values("headers", &parameters.headers, |_| PlaceholderSpot::Free)? {
            let unusable = || Error::HeaderValue { name: name.clone() };
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| unusable())?;
            value.set_sensitive(true);
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
            // Configurations often repeat what the transport asks for; ours accepts both forms anyway.
            if key != ACCEPT {
                headers.insert(key, value);
            }
        }
        let has_own = headers.contains_key(AUTHORIZATION);
        let login = match &parameters.login {
            _ if has_own => None,
            LoginMethod::Off => None,
            LoginMethod::Default => Some(oauth::OauthSettings::default()),
            LoginMethod::With(login) => Some(filler.login(login)?),
        };
        Ok((Self { url, transport, headers, login }, filler.into_secrets()))
    }
}

/// The position of a placeholder. A `.env` that came with the workspace must not choose the program or the
/// host, by a variable that is named like a secret.
#[derive(Clone, Copy)]
enum PlaceholderSpot<'a> {
    /// The program, or its directory.
    Program,
    /// A word of a command line, which may be a shell's.
    Argument,
    /// A variable that programs may act upon.
    Setting,
    /// A URL; these characters are its host.
    Url(&'a str),
    /// Mere data: headers, and variables for secrets.
    Free,
}

impl<'a> PlaceholderSpot<'a> {
    fn of_variable(name: &str) -> PlaceholderSpot<'_> {
        if is_for_a_secret(name) { PlaceholderSpot::Free } else { PlaceholderSpot::Setting }
    }

    fn of_url(url: &'a str) -> Self {
        let after = url.find("://").map_or(0, |at| at + 3);
        let end = url[after..].find(['/', '?', '#']).map_or(url.len(), |at| after + at);
        PlaceholderSpot::Url(&url[..end])
    }

    /// Why `.env` must not fill this position, if so.
    fn refuses(self, name: &str, value: &str) -> Option<&'static str> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@%,".contains(&byte);
        let is_in = |text: &str| {
            [format!("${{{name}}}"), format!("${{{name}:-")].iter().any(|each| text.contains(each))
        };
        match self {
            PlaceholderSpot::Program => Some("does not choose what is run"),
            PlaceholderSpot::Setting => Some("fills variables for secrets only, such as `API_KEY`"),
            PlaceholderSpot::Argument if value.starts_with('-') || !value.bytes().all(is_plain) => {
                Some("fills arguments with letters, digits and `-._~+/=:@%,` only, and not with options")
            }
            PlaceholderSpot::Url(host) if is_in(host) => Some("does not choose which server is talked to"),
            PlaceholderSpot::Argument | PlaceholderSpot::Url(_) | PlaceholderSpot::Free => None,
        }
    }
}

/// Fills texts and records the values.
struct Filler<'a> {
    variables: &'a Variables,
    /// The value of `${workspace}`.
    workspace: Option<&'a str>,
    used: BTreeMap<String, String>,
}

impl Filler<'_> {
    fn fill(&mut self, key: &str, text: &str, place: PlaceholderSpot<'_>) -> Result<String, Error> {
        match self.workspace {
            Some(workspace) => {
                let parts = text.split(WORKSPACE).map(|part| self.fill_variables(key, part, place));
                Ok(parts.collect::<Result<Vec<_>, _>>()?.join(workspace))
            }
            None => self.fill_variables(key, text, place),
        }
    }

    fn fill_variables(&mut self, key: &str, text: &str, place: PlaceholderSpot<'_>) -> Result<String, Error> {
        let mut used = BTreeMap::new();
        let filled = self.variables.fill_noting(text, &mut used);
        let filled = filled.map_err(|missing| Error::Placeholder { key: key.to_owned(), missing })?;
        for (name, value) in &used {
            if self.variables.is_of_the_workspace(name)
                && let Some(why) = place.refuses(name, value)
            {
                return Err(Error::Untrusted { key: key.to_owned(), name: name.clone(), why });
            }
        }
        self.used.extend(used);
        Ok(filled)
    }

    /// The parameters of a login, whose types have been checked.
    fn login(&mut self, login: &Map<String, Value>) -> Result<oauth::OauthSettings, Error> {
        let client_id = self.text(login, "oauth", "client_id", PlaceholderSpot::Free)?;
        let client_secret = self.text(login, "oauth", "client_secret", PlaceholderSpot::Free)?;
        let grant = match GrantKind::of(login)? {
            GrantKind::Code => TokenGrant::Code {
                client: client_id.map(|id| (id, client_secret)),
                client_metadata_url: match login.get("client_metadata_url") {
                    None => Some(oauth::CLIENT_METADATA_URL.to_owned()),
                    Some(_) => self.text(login, "oauth", "client_metadata_url", PlaceholderSpot::Setting)?,
                },
                redirect_uri: self.text(login, "oauth", "redirect_uri", PlaceholderSpot::Setting)?,
            },
            GrantKind::Client => {
                let client_id = client_id.unwrap_or_default();
                match self.text(login, "oauth", "private_key", PlaceholderSpot::Free)? {
                    Some(private_key) => {
                        let named = login.get("signing_algorithm").and_then(Value::as_str);
                        let known = SigningAlgorithm::NAMES.iter().find(|(name, _)| Some(*name) == named);
                        let algorithm = known.map_or(SigningAlgorithm::Es256, |(_, algorithm)| *algorithm);
                        TokenGrant::Client(MachineClient::Key { client_id, private_key, algorithm })
                    }
                    None => {
                        let client_secret = client_secret.unwrap_or_default();
                        TokenGrant::Client(MachineClient::Secret { client_id, client_secret })
                    }
                }
            }
            GrantKind::Team => TokenGrant::Team,
            GrantKind::Enterprise => {
                let key = "identity_provider";
                let provider = login.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
                let mut text = |name, spot| self.text(&provider, "oauth.identity_provider", name, spot);
                TokenGrant::Enterprise(Box::new(IdentityProvider {
                    issuer: text("issuer", PlaceholderSpot::Setting)?.unwrap_or_default(),
                    token_endpoint: text("token_endpoint", PlaceholderSpot::Setting)?.unwrap_or_default(),
                    client_id: text("client_id", PlaceholderSpot::Setting)?.unwrap_or_default(),
                    client_secret: text("client_secret", PlaceholderSpot::Free)?,
                    id_token: text("id_token", PlaceholderSpot::Free)?.unwrap_or_default(),
                    resource_client_id: client_id.unwrap_or_default(),
                    resource_client_secret: client_secret,
                }))
            }
        };
        let issuer = self.text(login, "oauth", "issuer", PlaceholderSpot::Setting)?;
        let scopes = login.get("scopes").and_then(Value::as_array).into_iter().flatten();
        let scopes = scopes.filter_map(Value::as_str).map(str::to_owned).collect();
        let private_addresses = login.get("private_addresses") == Some(&Value::Bool(true));
        let omits_resource = login.get("resource") == Some(&Value::Bool(false));
        Ok(oauth::OauthSettings { grant, scopes, issuer, private_addresses, omits_resource })
    }

    fn text(
        &mut self,
        object: &Map<String, Value>,
        prefix: &str,
        name: &str,
        place: PlaceholderSpot<'_>,
    ) -> Result<Option<String>, Error> {
        let text = object.get(name).and_then(Value::as_str);
        text.map(|text| self.fill(&format!("{prefix}.{name}"), text, place)).transpose()
    }

    fn fill_values(
        &mut self,
        key: &str,
        values: &BTreeMap<String, String>,
        place: impl for<'b> Fn(&'b str) -> PlaceholderSpot<'b>,
    ) -> Result<BTreeMap<String, String>, Error> {
        values
            .iter()
            .map(|(name, value)| Ok((name.clone(), self.fill(&format!("{key}.{name}"), value, place(name))?)))
            .collect()
    }

    fn into_secrets(self) -> Secrets {
        let inherited = self.variables.credentials();
        let used = self.used.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Secrets::new(used.chain(inherited.iter().map(|(name, secret)| (*name, secret.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::connections::mcp_client::parameters::{ServerParameters, ServerReach};

    fn variables() -> Variables {
        let pairs =
            [("HOST", "localhost:1"), ("KEY", "secret"), ("LONG_KEY", "secret-and-more"), ("BAD", "a\nb")];
        Variables::from_pairs(pairs.into_iter().chain([("NO", "no"), ("PLACE", "http://localhost/")]))
    }

    fn fill(value: Value) -> Result<(FilledHttp, Secrets), Error> {
        match ServerParameters::parse(value.as_object().unwrap()).unwrap().reach {
            ServerReach::Http(parameters) => FilledHttp::fill(&parameters, &variables()),
            ServerReach::Stdio(_) => panic!("{value} is a stdio server"),
        }
    }

    fn check_error(value: Value, expected: &str) {
        let error = fill(value.clone()).err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("secret"), "{value}: {error}");
    }

    #[test]
    fn placeholders_may_stand_anywhere() {
        let parameters = json!({"url": "http://${HOST}/sse?k=${KEY}", "headers": {"X-Key": "Bearer ${KEY}"}});
        let (filled, _) = fill(parameters).unwrap();
        assert_eq!(filled.url.as_str(), "http://localhost:1/sse?k=secret");
        assert_eq!(filled.transport, HttpTransport::Sse);
        assert_eq!(filled.headers["x-key"], "Bearer secret");
        assert!(!format!("{:?}", filled.headers).contains("secret"));
    }

    #[test]
    fn errors_of_filled_parameters_are_reported_without_the_value() {
        check_error(json!({"url": "http://a/mcp", "headers": {"X": "${BAD}"}}), "the header `X`");
        check_error(
            json!({"url": "http://a/mcp", "headers": {"X": "${GONE}"}}),
            "(asked for by `headers.X`)",
        );
        check_error(json!({"url": "${KEY}"}), "not an http or https URL");
        check_error(json!({"url": "${PLACE}"}), "the transport is unknown");
    }

    #[test]
    fn secrets_are_replaced_by_their_placeholders() {
        let (_, secrets) =
            fill(json!({"url": "http://a/mcp", "headers": {"X": "${KEY}${LONG_KEY}${NO}"}})).unwrap();
        assert_eq!(secrets.redact("no secret-and-more, secret!"), "no ${LONG_KEY}, ${KEY}!");
    }

    /// With a `.env` that came with the workspace.
    fn check_dotenv(value: &Value, dotenv: &str, refused: Option<&str>) {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::write(workspace.path().join(".env"), dotenv).unwrap();
        let variables = Variables::load(workspace.path());
        let filled = match ServerParameters::parse(value.as_object().unwrap()).unwrap().reach {
            ServerReach::Http(parameters) => FilledHttp::fill(&parameters, &variables).err(),
            ServerReach::Stdio(parameters) => {
                FilledStdio::fill(&parameters, &variables, workspace.path()).err()
            }
        };
        let words = filled.map(|error| error.to_string());
        assert_eq!(words.is_some(), refused.is_some(), "{value}: {words:?}");
        if let (Some(words), Some(refused)) = (words, refused) {
            assert!(words.contains(refused) && words.contains("IPYBOX_DOTENV=X_KEY"), "{words}");
            assert!(!words.contains("s3cret"), "{words}");
        }
    }

    #[test]
    fn a_secret_of_the_workspace_is_a_secret_and_nothing_else() {
        let stdio = |command: &str, argument: &str, name: &str| json!({"command": command, "args": [argument], "env": {name: "${X_KEY}"}, "cwd": "/"});
        let dotenv = "X_KEY=s3cret/+=\n";
        check_dotenv(&stdio("npx", "--header=Bearer:${X_KEY}", "API_KEY"), dotenv, None);
        check_dotenv(&json!({"url": "https://a/mcp?k=${X_KEY}", "headers": {"X": "${X_KEY}"}}), dotenv, None);
        check_dotenv(&stdio("${X_KEY}", "x", "API_KEY"), dotenv, Some("`${X_KEY}` in `command`"));
        check_dotenv(&stdio("npx", "x", "NODE_OPTIONS"), dotenv, Some("`${X_KEY}` in `env.NODE_OPTIONS`"));
        let cwd = json!({"command": "npx", "cwd": "${X_KEY}"});
        check_dotenv(&cwd, dotenv, Some("`${X_KEY}` in `cwd`"));
        for dotenv in ["X_KEY=--require=/s3cret", "X_KEY='$(s3cret)'", "X_KEY='s3cret; x'"] {
            check_dotenv(&stdio("sh", "${X_KEY}", "API_KEY"), dotenv, Some("`${X_KEY}` in `args[0]`"));
        }
        for url in ["${X_KEY}/mcp", "https://${X_KEY}/mcp", "https://a${X_KEY:-b}", "https://a${X_KEY}/mcp"] {
            check_dotenv(&json!({"url": url, "type": "sse"}), dotenv, Some("`${X_KEY}` in `url`"));
        }
    }
}
