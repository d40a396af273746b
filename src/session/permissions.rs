//! The permissions of clients that a session's kernels hold, and the installer for the place where they do.

use std::sync::Arc;

use parking_lot::RwLock;

use super::registrar::AskedApprover;
use super::site::SiteInstaller;
use crate::approval::{Approver, ChosenBy};
use crate::config::Config;
use crate::kernels::sandbox::ClientPermissions;

/// The permissions of a client's commands; `None` if it has not told.
pub(crate) type ToldPermissions = Option<Arc<ClientPermissions>>;

/// Why a confined client cannot have the host do something.
static CONFINED: Approver = Approver::Nobody(
    "the MCP client confines its own commands, this would happen outside of their sandbox, and the client cannot ask its user\n\
     hint: have the user allow it by a rule of `--approval-policy`; `ipybox import` registers servers in a terminal",
);

/// The installer for the place where kernels run now, and the permissions that hold there.
pub(super) struct PlaceInForce(RwLock<(Arc<SiteInstaller>, Vec<Arc<ClientPermissions>>)>);

/// The place of a worker's kernels, as far as clients decide it.
pub(super) struct ClientObedience {
    /// The settings of the session, without any client's permissions.
    pub(super) config: Arc<Config>,
    pub(super) place: Arc<PlaceInForce>,
    /// Whether a cell has been sent to the kernel, so that variables would be lost with it.
    pub(super) has_run: bool,
    /// Whether the note about further permissions was given.
    pub(super) has_noted_wider: bool,
}

impl PlaceInForce {
    pub(super) fn new(installer: Arc<SiteInstaller>, clients: &[Arc<ClientPermissions>]) -> Arc<Self> {
        Arc::new(Self(RwLock::new((installer, clients.to_vec()))))
    }

    /// The installer of packages for the kernels.
    pub(super) fn installer(&self) -> Arc<SiteInstaller> {
        Arc::clone(&self.0.read().0)
    }

    /// The clients whose permissions kernels hold.
    pub(super) fn clients(&self) -> Vec<Arc<ClientPermissions>> {
        self.0.read().1.clone()
    }

    /// Whether kernels get no more than `client` allows.
    pub(super) fn holds(&self, client: &ClientPermissions) -> bool {
        holds(&self.0.read().1, client)
    }

    /// The approver of what a client has the host do. A client that confines its own commands asks its user about it, if no
    /// rule allows it: it would happen outside of its sandbox. One that does not tell is as the others of the session.
    pub(super) fn approver<'a>(&self, approver: &'a Approver, client: &ToldPermissions) -> AskedApprover<'a> {
        let is_confined = match client {
            Some(client) => !client.is_unrestricted(),
            None => !self.0.read().1.is_empty(),
        };
        if !is_confined {
            return AskedApprover { approver, chosen_by: ChosenBy::Trusted };
        }
        let is_nobody = match approver {
            Approver::Nobody(_) => true,
            Approver::Attached(queue, _) => !queue.is_attended(),
            Approver::User(_) | Approver::Consent => false,
        };
        let approver = if is_nobody { &CONFINED } else { approver };
        AskedApprover { approver, chosen_by: ChosenBy::Confined }
    }

    pub(super) fn replace(&self, installer: Option<SiteInstaller>, clients: &[Arc<ClientPermissions>]) {
        let mut place = self.0.write();
        place.0 = installer.map_or_else(|| Arc::clone(&place.0), Arc::new);
        place.1 = clients.to_vec();
    }
}

/// Whether all of these permissions together allow no more than `client`.
pub(super) fn holds(clients: &[Arc<ClientPermissions>], client: &ClientPermissions) -> bool {
    client.is_unrestricted() || clients.iter().any(|held| held.is_within(client))
}
