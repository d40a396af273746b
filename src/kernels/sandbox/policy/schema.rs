//! The keys of a policy, and their allowed values; pure.
//!
//! All keys that srt 0.0.78 knows are known. The inner keys of `credentials` and `windows` are left to srt,
//! which checks them itself.

use serde_json::{Map, Value};

use super::PolicyProblem;
use crate::ground::text::{nearest, shortened};
use crate::ground::web::AddressRange;
use crate::kernels::sandbox::domain::DomainRule;

/// The allowed form of a value.
enum ValueShape {
    Flag,
    /// A flag that must not be set, and why.
    Unset(&'static str),
    Text,
    /// A text that is not empty.
    Words,
    Path,
    /// A path whose glob must match something: a slash at the end keeps it from that.
    DenyPath,
    AbsolutePath,
    Number(u64, u64),
    Domain,
    DeniedDomain,
    /// A domain without a port.
    Host,
    Address,
    /// A list with at least so many entries.
    List(usize, &'static ValueShape),
    /// An object with any keys.
    Table(&'static ValueShape),
    Section(&'static [Key]),
    /// An object that srt checks.
    Foreign,
    /// Not for files, and why.
    Refused(&'static str),
}

struct Key {
    name: &'static str,
    is_needed: bool,
    shape: ValueShape,
}

const fn needed(name: &'static str, shape: ValueShape) -> Key {
    Key { name, is_needed: true, shape }
}

const fn key(name: &'static str, shape: ValueShape) -> Key {
    Key { name, is_needed: false, shape }
}

const DOCUMENT: ValueShape = ValueShape::Section(KEYS);

static KEYS: &[Key] = &[
    needed("network", ValueShape::Section(NETWORK)),
    needed("filesystem", ValueShape::Section(FILESYSTEM)),
    key("credentials", ValueShape::Section(CREDENTIALS)),
    key("ignoreViolations", ValueShape::Table(&ValueShape::List(0, &ValueShape::Text))),
    key(
        "enableWeakerNestedSandbox",
        ValueShape::Unset(
            "it shows the processes of the host inside, and ipybox does not weaken its sandbox",
        ),
    ),
    key("enableWeakerNetworkIsolation", ValueShape::Flag),
    key("allowAppleEvents", ValueShape::Flag),
    key("ripgrep", ValueShape::Section(RIPGREP)),
    key("mandatoryDenySearchDepth", ValueShape::Number(1, 10)),
    key("allowPty", ValueShape::Flag),
    key("seccomp", ValueShape::Section(SECCOMP)),
    key("bwrapPath", ValueShape::AbsolutePath),
    key("socatPath", ValueShape::AbsolutePath),
    key("javaAgentJarPath", ValueShape::AbsolutePath),
    key("windows", ValueShape::Section(WINDOWS)),
    key("git", ValueShape::Section(GIT)),
];

static NETWORK: &[Key] = &[
    needed("allowedDomains", ValueShape::List(0, &ValueShape::Domain)),
    needed("deniedDomains", ValueShape::List(0, &ValueShape::DeniedDomain)),
    key("deniedDomainReasons", ValueShape::Table(&ValueShape::Words)),
    key("strictAllowlist", ValueShape::Flag),
    key("deniedResolvedAddresses", ValueShape::List(0, &ValueShape::Address)),
    key("allowUnixSockets", ValueShape::List(0, &ValueShape::Text)),
    key("allowAllUnixSockets", ValueShape::Flag),
    key("allowLocalBinding", ValueShape::Flag),
    key("allowMachLookup", ValueShape::List(0, &ValueShape::Text)),
    key("httpProxyPort", ValueShape::Number(1, 65535)),
    key("socksProxyPort", ValueShape::Number(1, 65535)),
    key("mitmProxy", ValueShape::Section(MITM_PROXY)),
    key("filterRequest", ValueShape::Refused("it is a function of a program that uses srt as a library")),
    key("tlsTerminate", ValueShape::Section(TLS_TERMINATE)),
    key("parentProxy", ValueShape::Section(PARENT_PROXY)),
];

static MITM_PROXY: &[Key] =
    &[needed("socketPath", ValueShape::Words), needed("domains", ValueShape::List(1, &ValueShape::Host))];

static TLS_TERMINATE: &[Key] = &[
    key("caCertPath", ValueShape::Words),
    key("caKeyPath", ValueShape::Words),
    key("excludeDomains", ValueShape::List(0, &ValueShape::Host)),
    key("extraCaCertPaths", ValueShape::List(0, &ValueShape::Words)),
];

static PARENT_PROXY: &[Key] =
    &[key("http", ValueShape::Words), key("https", ValueShape::Words), key("noProxy", ValueShape::Text)];

static FILESYSTEM: &[Key] = &[
    key("disabled", ValueShape::Unset("without rules for files there is no sandbox")),
    needed("denyRead", ValueShape::List(0, &ValueShape::DenyPath)),
    key("allowRead", ValueShape::List(0, &ValueShape::Path)),
    needed("allowWrite", ValueShape::List(0, &ValueShape::Path)),
    needed("denyWrite", ValueShape::List(0, &ValueShape::DenyPath)),
    key("allowGitConfig", ValueShape::Flag),
];

static CREDENTIALS: &[Key] = &[
    key("files", ValueShape::List(0, &ValueShape::Foreign)),
    key("envVars", ValueShape::List(0, &ValueShape::Foreign)),
    key("allowPlaintextInject", ValueShape::Flag),
    key("awsPairs", ValueShape::List(0, &ValueShape::Foreign)),
    key("sigv4", ValueShape::Foreign),
];

static RIPGREP: &[Key] = &[
    needed("command", ValueShape::Words),
    key("args", ValueShape::List(0, &ValueShape::Text)),
    key("argv0", ValueShape::Text),
];

static SECCOMP: &[Key] = &[key("applyPath", ValueShape::Words), key("argv0", ValueShape::Text)];

static WINDOWS: &[Key] = &[
    key("sandboxUser", ValueShape::Words),
    key("sublayerGuid", ValueShape::Words),
    key("wfpSublayerGuid", ValueShape::Words),
    key("proxyPortRange", ValueShape::List(2, &ValueShape::Number(1, 65535))),
    key("srtWin", ValueShape::Foreign),
];

static GIT: &[Key] = &[key("safeDirectories", ValueShape::List(0, &ValueShape::Text))];

/// A key as errors show it, and what is wrong with it.
pub(super) type PolicyFault = (String, PolicyProblem);

/// The document, if all its keys are known and its values valid.
pub(super) fn check(document: &Value) -> Result<&Map<String, Value>, PolicyFault> {
    DOCUMENT.check(document, &Position(String::new()))?;
    document.as_object().ok_or_else(|| Position(String::new()).fault(not_allowed(document, &DOCUMENT)))
}

/// The position of a value in the document, as in `filesystem.allowWrite[2]`.
struct Position(String);

impl Position {
    fn key(&self, name: &str) -> Self {
        Self(if self.0.is_empty() { name.to_owned() } else { format!("{}.{name}", self.0) })
    }

    fn entry(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn fault(&self, problem: PolicyProblem) -> PolicyFault {
        (if self.0.is_empty() { "the document".to_owned() } else { format!("`{}`", self.0) }, problem)
    }
}

impl ValueShape {
    fn check(&self, value: &Value, position: &Position) -> Result<(), PolicyFault> {
        match (self, value) {
            (Self::List(least, shape), Value::Array(list)) if list.len() >= *least => list
                .iter()
                .enumerate()
                .try_for_each(|(index, entry)| shape.check(entry, &position.entry(index))),
            (Self::Table(shape), Value::Object(table)) => {
                table.iter().try_for_each(|(name, entry)| shape.check(entry, &position.key(name)))
            }
            (Self::Section(keys), Value::Object(section)) => check_section(section, keys, position),
            _ => self.check_plain(value).map_err(|problem| position.fault(problem)),
        }
    }

    /// A value without others in it, or of another type than it should have.
    fn check_plain(&self, value: &Value) -> Result<(), PolicyProblem> {
        let text = value.as_str();
        let fits = match self {
            Self::Flag => value.is_boolean(),
            Self::Unset(reason) if value == &Value::Bool(true) => {
                return Err(PolicyProblem::Refused { value: shown(value), reason });
            }
            Self::Unset(_) => value.is_boolean(),
            Self::Refused(reason) => return Err(PolicyProblem::Refused { value: shown(value), reason }),
            Self::Text => text.is_some(),
            Self::Words | Self::Path => text.is_some_and(|text| !text.is_empty()),
            Self::DenyPath => text.is_some_and(|text| !text.is_empty() && !matches_nothing(text)),
            Self::AbsolutePath => text.is_some_and(|text| text.starts_with('/')),
            Self::Number(least, most) => {
                value.as_u64().is_some_and(|number| (*least..=*most).contains(&number))
            }
            Self::Domain | Self::DeniedDomain | Self::Host | Self::Address => {
                return text.ok_or_else(|| not_allowed(value, self)).and_then(|text| self.check_name(text));
            }
            Self::Foreign => value.is_object(),
            Self::List(..) | Self::Table(_) | Self::Section(_) => false,
        };
        if fits { Ok(()) } else { Err(not_allowed(value, self)) }
    }

    /// A name or address in the network.
    fn check_name(&self, text: &str) -> Result<(), PolicyProblem> {
        match self {
            Self::Address => AddressRange::parse(text).map(drop)?,
            Self::DeniedDomain => DomainRule::parse_denied(text).map(drop)?,
            _ => DomainRule::parse(text).map(drop)?,
        }
        // Colons of an address are within brackets.
        let has_port = text.rsplit(']').next().is_some_and(|end| end.contains(':'));
        match self {
            Self::Host if has_port => Err(not_allowed(&Value::from(text), self)),
            _ => Ok(()),
        }
    }

    /// The text to write, after "hint: write".
    fn allowed(&self) -> &'static str {
        match self {
            Self::Flag => "`true` or `false`",
            Self::Unset(_) => "`false`, or leave it out",
            Self::Text => "a text in quotes",
            Self::Words => "a text in quotes that is not empty",
            Self::Path => "a path in quotes, relative to the workspace, absolute, or from `~/`",
            Self::DenyPath => {
                "a path in quotes, relative to the workspace, absolute, or from `~/`; a pattern that ends in `/` would \
                 match nothing"
            }
            Self::AbsolutePath => "an absolute path in quotes",
            Self::Number(1, 10) => "a whole number from 1 to 10",
            Self::Number(..) => "a whole number from 1 to 65535",
            Self::Domain => {
                "a domain in quotes, like `\"example.com\"`, `\"*.example.com\"` or `\"example.com:443\"`"
            }
            Self::DeniedDomain => {
                "a domain in quotes, like `\"example.com\"`, `\"*.example.com\"` or `\"*\"`"
            }
            Self::Host => "a domain in quotes without a port, like `\"example.com\"` or `\"*.example.com\"`",
            Self::Address => "an address or range in quotes, like `\"10.0.0.0/8\"`",
            Self::List(_, Self::Path | Self::DenyPath) => "a list of paths, like `[\".\", \"~/data\"]`",
            Self::List(_, Self::Domain | Self::DeniedDomain) => "a list of domains, like `[\"example.com\"]`",
            Self::List(0, Self::Host) => "a list of domains, like `[\"example.com\"]`",
            Self::List(_, Self::Host) => "a list of domains with at least one, like `[\"example.com\"]`",
            Self::List(_, Self::Address) => "a list of addresses and ranges, like `[\"10.0.0.0/8\"]`",
            Self::List(_, Self::Foreign) => "a list of objects",
            Self::List(2, _) => "a list of two whole numbers from 1 to 65535",
            Self::List(..) => "a list of texts in quotes",
            Self::Table(Self::List(..)) => "an object whose values are lists of texts in quotes",
            Self::Table(_) => "an object whose values are texts in quotes",
            Self::Section(_) | Self::Foreign => "an object in `{}`",
            Self::Refused(_) => "nothing here",
        }
    }
}

fn check_section(section: &Map<String, Value>, keys: &[Key], position: &Position) -> Result<(), PolicyFault> {
    for (name, value) in section {
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            return Err(position.key(name).fault(PolicyProblem::Unknown { hint: hint(name, keys) }));
        };
        key.shape.check(value, &position.key(name))?;
    }
    match keys.iter().find(|key| key.is_needed && !section.contains_key(key.name)) {
        Some(key) => {
            Err(position.key(key.name).fault(PolicyProblem::Missing { allowed: key.shape.allowed() }))
        }
        None => Ok(()),
    }
}

/// The keys that `name` may mean: one that is spelled like it, one of another section, or any of `keys`.
fn hint(name: &str, keys: &[Key]) -> String {
    if let Some(near) = nearest(name, keys.iter().map(|key| key.name)).first() {
        return format!("did you mean `{near}`?");
    }
    let sections = KEYS.iter().filter_map(|key| match key.shape {
        ValueShape::Section(inner) => Some((key.name, inner)),
        _ => None,
    });
    for (section, inner) in sections {
        if let Some(near) = nearest(name, inner.iter().map(|key| key.name)).first() {
            return format!("did you mean `{section}.{near}`?");
        }
    }
    if let Some(near) = nearest(name, KEYS.iter().map(|key| key.name)).first() {
        return format!("did you mean `{near}` at the top of the document?");
    }
    let names: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
    format!("known are {}", names.join(", "))
}

fn not_allowed(value: &Value, shape: &ValueShape) -> PolicyProblem {
    PolicyProblem::Value { value: shown(value), allowed: shape.allowed() }
}

/// The part of a value that errors show.
const SHOWN_CHARS: usize = 80;

/// A value as JSON, its beginning if it is long.
pub(super) fn shown(value: &Value) -> String {
    format!("`{}`", shortened(&value.to_string(), SHOWN_CHARS))
}

/// Whether srt would read it as a pattern for names that end in a slash, which matches nothing.
fn matches_nothing(path: &str) -> bool {
    path.ends_with('/') && path.starts_with(['/', '~']) && super::paths::has_glob(path)
}
