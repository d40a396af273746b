//! A value on its way from the kernel to a file.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::manifest::VARIABLE_BYTES;
use super::{Checkpoint, Error};
use crate::ground::files::replacement::Replacement;

/// A value that is arriving. Dropping it leaves nothing.
pub(crate) struct ArrivingValue {
    checkpoint: Arc<Checkpoint>,
    number: u64,
    /// Removes the file when it is dropped.
    fresh: Option<Replacement>,
    file: tokio::fs::File,
    digest: Sha256,
    bytes: u64,
}

impl ArrivingValue {
    /// Begins to receive a value that was asked for by this number.
    ///
    /// # Errors
    /// It was not, another value is arriving, or there is no room for a file.
    pub(crate) fn begin(checkpoint: &Arc<Checkpoint>, number: u64) -> Result<Self, Error> {
        let mut guard = checkpoint.state.lock();
        let state = &mut *guard;
        let saving = state.saving.as_mut().filter(|saving| saving.number == number).ok_or(Error::NotAsked)?;
        let open = state.open.as_ref().ok_or(Error::NotAsked)?;
        if saving.is_receiving {
            return Err(Error::Occupied);
        }
        let mut fresh = open.directory.create().map_err(Error::Disk)?;
        let file = fresh.as_file().try_clone().map_err(Error::Disk)?;
        saving.is_receiving = true;
        Ok(Self {
            checkpoint: Arc::clone(checkpoint),
            number,
            fresh: Some(fresh),
            file: tokio::fs::File::from_std(file),
            digest: Sha256::new(),
            bytes: 0,
        })
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// The value is too large, nobody waits for it any more, or it cannot be written.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        let length = piece.len() as u64;
        self.bytes += length;
        if self.bytes > VARIABLE_BYTES {
            return Err(Error::TooLarge);
        }
        {
            let mut state = self.checkpoint.state.lock();
            let saving = state.saving.as_mut().filter(|saving| saving.number == self.number);
            let saving = saving.ok_or(Error::NotAsked)?;
            saving.room = saving.room.checked_sub(length).ok_or(Error::TooLarge)?;
        }
        self.digest.update(piece);
        self.file.write_all(piece).await.map_err(Error::Disk)
    }

    /// Keeps the value under its digest.
    ///
    /// # Errors
    /// Nobody waits for it any more, or it cannot be written.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        self.file.flush().await.map_err(Error::Disk)?;
        // A checkpoint is to outlive the machine's sudden end.
        self.file.sync_data().await.map_err(Error::Disk)?;
        let digest = format!("{:x}", std::mem::take(&mut self.digest).finalize());
        let state = self.checkpoint.state.lock();
        let is_asked = state.saving.as_ref().is_some_and(|saving| saving.number == self.number);
        state.open.as_ref().filter(|_| is_asked).ok_or(Error::NotAsked)?;
        if let Some(fresh) = self.fresh.take() {
            fresh.put(&digest).map_err(Error::Disk)?;
        }
        drop(state);
        Ok(())
    }
}

impl Drop for ArrivingValue {
    fn drop(&mut self) {
        let mut state = self.checkpoint.state.lock();
        if let Some(saving) = state.saving.as_mut().filter(|saving| saving.number == self.number) {
            saving.is_receiving = false;
        }
    }
}
