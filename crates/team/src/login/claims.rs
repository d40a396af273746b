//! The user that the claims of a token name, of whichever kind the token is.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::config::IssuerConfig;
use super::{ClaimedName, LoginConfig, TeamUser, TokenFault, TokenLoginError, UserIdentity};

/// The longest subject, in characters; OpenID Connect allows 255 bytes.
const LONGEST_SUBJECT: usize = 512;
/// The longest name that is shown, in characters.
const LONGEST_NAME: usize = 120;
/// The largest number of groups or scopes.
const MOST_WORDS: usize = 2000;

/// The claims of a token, with what they are compared with.
pub(super) struct TokenClaims<'c> {
    pub(super) config: &'c LoginConfig,
    pub(super) issuer: &'c IssuerConfig,
    pub(super) claims: &'c Map<String, Value>,
}

impl TokenClaims<'_> {
    /// The user that the token names.
    ///
    /// # Errors
    /// The token is for another server, lacks a scope, or has claims of other types than they should have.
    pub(super) fn user(&self) -> Result<TeamUser, TokenLoginError> {
        if self.claims.contains_key("cnf") {
            return Err(TokenFault::Bound.into());
        }
        self.check_kind()?;
        self.check_audience()?;
        let user = self.named()?;
        // The scopes of a JupyterHub are its own; that which stands for the audience was looked for.
        let required = self.config.required_scopes.iter().filter(|_| self.issuer.jupyterhub.is_none());
        let missing: Vec<String> = required.filter(|scope| !user.scopes.contains(*scope)).cloned().collect();
        if missing.is_empty() { Ok(user) } else { Err(TokenLoginError::Scope { missing }) }
    }

    /// The user whom the claims name, whatever the token is for.
    ///
    /// # Errors
    /// A claim has another type than it should have, or the subject is missing.
    pub(super) fn named(&self) -> Result<TeamUser, TokenFault> {
        let subject = self.claims.get("sub").and_then(Value::as_str).ok_or(TokenFault::Subject)?;
        let is_usable = !subject.is_empty()
            && subject.chars().count() <= LONGEST_SUBJECT
            && !subject.chars().any(char::is_control);
        if !is_usable {
            return Err(TokenFault::Subject);
        }
        let scopes = self.scopes()?;
        let identity =
            UserIdentity { issuer: self.issuer.issuer.as_str().to_owned(), subject: subject.to_owned() };
        let name = self.name().unwrap_or_else(|| subject.to_owned());
        let hub_user = self.hub_user(subject);
        Ok(TeamUser {
            identity,
            name,
            hub_user,
            groups: self.groups()?,
            scopes,
            expires_at: self.expires_at()?,
        })
    }

    /// Refuses what Amazon's or Keycloak's claims say is no access token.
    fn check_kind(&self) -> Result<(), TokenFault> {
        let is_other = |claim, access: &[&str]| match self.claims.get(claim) {
            None => false,
            Some(Value::String(kind)) => !access.iter().any(|name| kind.eq_ignore_ascii_case(name)),
            Some(_) => true,
        };
        let is_other = is_other("token_use", &["access"]) || is_other("typ", &["Bearer", "at+jwt", "JWT"]);
        if is_other { Err(TokenFault::Kind) } else { Ok(()) }
    }

    fn check_audience(&self) -> Result<(), TokenFault> {
        let expected = |audience: &str| match self.issuer.audience.as_slice() {
            [] => audience == self.config.resource.as_str(),
            audiences => audiences.iter().any(|known| known == audience),
        };
        let is_ours = match self.claims.get("aud") {
            Some(Value::String(audience)) => expected(audience),
            Some(Value::Array(audiences)) => {
                let texts = audiences.iter().map(|audience| audience.as_str().ok_or(TokenFault::Claim));
                texts.collect::<Result<Vec<_>, _>>()?.into_iter().any(expected)
            }
            None => false,
            Some(_) => return Err(TokenFault::Claim),
        };
        if is_ours { Ok(()) } else { Err(TokenFault::Audience) }
    }

    /// The scopes: words in `scope` (RFC 9068), or in `scp` as Entra and Okta have it.
    fn scopes(&self) -> Result<BTreeSet<String>, TokenFault> {
        let claim = self.claims.get("scope").or_else(|| self.claims.get("scp"));
        match claim {
            Some(Value::String(scopes)) => Ok(scopes.split_whitespace().map(str::to_owned).collect()),
            other => words(other),
        }
    }

    fn groups(&self) -> Result<BTreeSet<String>, TokenFault> {
        let mut groups = BTreeSet::new();
        for name in self.issuer.claims.groups.as_slice() {
            // Entra leaves out the groups of who has more than 200, and names a place to ask for them instead. Who is in no
            // group may be under fewer rules.
            if self.claims.get("_claim_names").is_some_and(|names| names.get(name).is_some()) {
                return Err(TokenFault::Groups);
            }
            match self.claim(name) {
                Some(Value::String(group)) => groups.extend([group.clone()]),
                other => groups.extend(words(other)?),
            }
        }
        Ok(groups)
    }

    fn name(&self) -> Option<String> {
        let claims = [self.issuer.claims.name.as_str(), "preferred_username", "username"];
        let names = claims.into_iter().filter_map(|name| self.claim(name)?.as_str());
        let shown = |name: &str| {
            let visible = name.chars().filter(|character| !is_invisible(*character));
            visible.take(LONGEST_NAME).collect::<String>().trim().to_owned()
        };
        names.map(shown).find(|name| !name.is_empty())
    }

    /// The user's name at a JupyterHub: that of the configured claim, or the first one of those that are usual.
    fn hub_user(&self, subject: &str) -> ClaimedName {
        let text = |claim: &str| self.claim(claim).and_then(Value::as_str).unwrap_or_default().to_owned();
        let claimed = |claim: &str| ClaimedName { claim: claim.to_owned(), value: text(claim) };
        if let Some(claim) = &self.config.hub_user_claim {
            return claimed(claim);
        }
        let usual = ["preferred_username", "username"].into_iter().map(claimed);
        let first = usual.into_iter().find(|name| !name.value.is_empty());
        first.unwrap_or_else(|| ClaimedName { claim: "sub".to_owned(), value: subject.to_owned() })
    }

    fn expires_at(&self) -> Result<Option<SystemTime>, TokenFault> {
        let Some(claim) = self.claims.get("exp") else { return Ok(None) };
        let seconds = claim.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let end = seconds.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(seconds));
        end.map(Some).ok_or(TokenFault::Claim)
    }

    /// The claim of this name, or at this JSON pointer.
    fn claim(&self, name: &str) -> Option<&Value> {
        match name.strip_prefix('/') {
            None => self.claims.get(name),
            Some(path) => {
                let mut steps = path.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
                let first = self.claims.get(&steps.next()?)?;
                steps.try_fold(first, |value, step| value.get(&step))
            }
        }
    }
}

fn words(claim: Option<&Value>) -> Result<BTreeSet<String>, TokenFault> {
    match claim {
        None | Some(Value::Null) => Ok(BTreeSet::new()),
        Some(Value::Array(words)) if words.len() <= MOST_WORDS => {
            words.iter().map(|word| word.as_str().map(str::to_owned).ok_or(TokenFault::Claim)).collect()
        }
        Some(_) => Err(TokenFault::Claim),
    }
}

/// Whether the character could make a name look like another one: controls, and those that turn the direction of text.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
