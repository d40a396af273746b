//! Secrets in the vault, for servers that are about to be registered.

use std::io;

use super::Registry;
use super::records::{ServerChange, ServerRecords, journal_in};
use crate::ground::env::vault::Vault;
use crate::ground::files::JournalNote;

impl Registry {
    /// Notes that the vault is about to keep secrets of these names for `server`. If this process dies, the next one removes
    /// those that no registration names. The caller has the vault's turn.
    pub(crate) fn note_secrets(
        &self,
        vault: &Vault,
        server: &str,
        names: &[String],
    ) -> io::Result<JournalNote> {
        let change = ServerChange::Secrets { server: server.to_owned(), names: names.to_vec() };
        journal_in(vault.directory()).note(&change)
    }

    /// Removes the noted secrets that no registration names. Blocks. The caller has the vault's turn.
    pub(crate) fn forget_secrets(
        &self,
        vault: &Vault,
        names: &[String],
        note: JournalNote,
    ) -> io::Result<()> {
        self.records.forget_secrets_in_turn(vault, names, 1)?;
        note.remove();
        Ok(())
    }
}

impl ServerRecords {
    /// Removes secrets that no registration names, and that nobody is about to register beside the caller, who has noted them
    /// `own_notes` times.
    pub(super) fn forget_secrets(&self, vault: &Vault, names: &[String], own_notes: usize) -> io::Result<()> {
        let _turn = vault.turn()?;
        self.forget_secrets_in_turn(vault, names, own_notes)
    }

    /// As [`forget_secrets`](Self::forget_secrets); the caller has the vault's turn.
    fn forget_secrets_in_turn(&self, vault: &Vault, names: &[String], own_notes: usize) -> io::Result<()> {
        let mut used = Vec::new();
        for server in self.servers.names()? {
            used.extend(
                self.servers.get(&server)?.into_iter().flat_map(|stored| stored.parameters.secrets()),
            );
        }
        let noted = journal_in(vault.directory()).all()?.into_iter().flat_map(ServerChange::secrets);
        let noted: Vec<String> = noted.collect();
        let is_free = |name: &&String| {
            !used.contains(name) && noted.iter().filter(|noted| noted == name).count() <= own_notes
        };
        names.iter().filter(is_free).try_for_each(|name| vault.remove(name).map(drop))
    }
}
