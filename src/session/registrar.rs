//! Registers servers for a session: the decision, the package, the connection for the first call.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::ProgressReceiver;
use super::error::RegisterError;
use crate::approval::{Action, Approver, ChosenBy, DenialReason, Gate, OpenCall, REGISTER, Target};
use crate::ground::text::describe;
use crate::tools::registry::{self, PackageDirectory, Registration, Registry, ServerCandidate};
use crate::tools::servers::{self, ConnectionPool, OpenConnection};

/// A server that is registered, with an open connection.
pub(super) type DoneRegistration = (Registration, OpenConnection);

/// Decides about what a client requests, and the party that has chosen it.
#[derive(Clone, Copy)]
pub(super) struct AskedApprover<'a> {
    pub(super) approver: &'a Approver,
    pub(super) chosen_by: ChosenBy,
}

/// Registers servers for the code of a session.
#[derive(Clone)]
pub(super) struct Registrar {
    pub(super) registry: Registry,
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) gate: Arc<Gate>,
    pub(super) workspace: PathBuf,
}

impl Registrar {
    /// Puts the package of a server in place, if that is permitted; see [`permit`].
    pub(super) async fn register(
        &self,
        name: &str,
        parameters: &Map<String, Value>,
        asked: Option<AskedApprover<'_>>,
        progress: ProgressReceiver<'_>,
    ) -> Result<DoneRegistration, RegisterError> {
        // Nobody is asked about what cannot be done.
        let candidate = self.registry.candidate(name, parameters)?;
        // Nor about a server that is registered already.
        let (approver, chosen_by) = match asked {
            Some(_) if candidate.is_known() => (Some(&Approver::Consent), ChosenBy::Trusted),
            Some(AskedApprover { approver, chosen_by }) => (Some(approver), chosen_by),
            None => (None, ChosenBy::Trusted),
        };
        let on_record = match approver {
            Some(approver) => {
                // What is asked about is what is used, not the words of the request.
                let action = registration(candidate.name(), candidate.parameters().shown_json());
                Some(permit(&self.gate, action, approver, chosen_by).await?)
            }
            None => None,
        };
        let registered = self.generate(candidate, approver, progress).await;
        record_end(on_record, &registered, |(registration, ..)| json!(registration.modules));
        Ok(registered?)
    }

    /// Puts the package of a server in place. The caller has the permission; the user of `approver` logs in if the server
    /// asks for it.
    pub(super) async fn generate(
        &self,
        candidate: ServerCandidate,
        approver: Option<&Approver>,
        progress: ProgressReceiver<'_>,
    ) -> Result<DoneRegistration, registry::Error> {
        let packages = PackageDirectory::of_workspace(&self.workspace);
        let registering = self.registry.register(candidate.clone(), packages.clone(), progress);
        let (error, approver) = match (Box::pin(registering).await, approver) {
            (Err(error), Some(approver)) => (error, approver),
            (registered, _) => return registered,
        };
        let (refusal, error) = error.into_refusal();
        let Some(refusal) = refusal else { return Err(error) };
        progress("waiting for the user to log in");
        let connector = self.registry.connector();
        let name = candidate.name();
        let parameters = candidate.parameters();
        let logging_in = servers::log_in(connector, &self.gate, approver, name, parameters, refusal);
        match Box::pin(logging_in).await {
            Ok(()) => Box::pin(self.registry.register(candidate, packages, progress)).await,
            // This error is the answer.
            Err(refusal) => Err(error.with_refusal(servers::with_offers(connector, refusal))),
        }
    }

    /// Keeps the connection of a registered server for the first call, unless the session is stopping.
    pub(super) async fn keep(&self, name: &str, open: OpenConnection, is_stopping: impl Fn() -> bool) {
        self.pool.adopt(name, open).await;
        // Asked only now: a session that begins to stop later closes the connection itself.
        if is_stopping() {
            self.pool.stop().await;
        }
    }
}

/// The action of registering a server by parameters that have been read.
pub(super) fn registration(name: &str, parameters: Map<String, Value>) -> Action {
    let arguments = [("server_name", json!(name)), ("server_params", json!(parameters))];
    Action::ours(REGISTER, arguments, Target::Host)
}

/// Asks the gate whether ipybox itself may do what its client requests, or what a file offers.
pub(super) async fn permit(
    gate: &Gate,
    action: Action,
    approver: &Approver,
    chosen_by: ChosenBy,
) -> Result<OpenCall, DenialReason> {
    gate.decide_at_once(action, approver, chosen_by).await
}

/// Records how an operation of a client ended, if its decision is on record.
pub(super) fn record_end<T, E: std::error::Error>(
    on_record: Option<OpenCall>,
    ended: &Result<T, E>,
    value: impl FnOnce(&T) -> Value,
) {
    match (on_record, ended) {
        (None, _) => {}
        (Some(on_record), Ok(done)) => on_record.result(|| value(done)),
        (Some(on_record), Err(error)) => on_record.error(&describe(error)),
    }
}
