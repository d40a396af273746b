//! TLS by certificates and a key in files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::ListenError;
use crate::config::TlsFiles;

/// The reason why the files are of no use, if they are.
pub(crate) fn tls_problem(files: &TlsFiles) -> Option<String> {
    acceptor(files).err().map(|error| crate::describe(&error))
}

/// Reads the files.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ListenError> {
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(&files.certificate, error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.certificate, error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| unusable(&files.certificate, error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> ListenError {
    ListenError::Tls { path: path.to_owned(), source: io::Error::other(error) }
}
