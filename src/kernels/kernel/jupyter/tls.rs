//! Trusted certificates: the system's roots, and those that a user names.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// The configuration of connections to servers with these certificates, beside those that the system trusts.
pub(super) fn config(named: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = JupyterCertificate {
        named: named.to_vec(),
        others: others(named, &provider)?,
        provider: Arc::clone(&provider),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth())
}

/// The verifier of other certificates: `None` without any roots.
fn others(
    named: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, rustls::Error> {
    match Verifier::new_with_extra_roots(named.to_vec(), Arc::clone(provider)) {
        Ok(verifier) => return Ok(Some(Arc::new(verifier))),
        Err(error) => tracing::debug!(%error, "no TLS trust anchors of the system"),
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(named.iter().cloned());
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    Ok(Some(verifier.map_err(|error| rustls::Error::General(error.to_string()))?))
}

/// Accepts a named certificate even if it is self-signed: Jupyter's documentation recommends such ones, and
/// TLS libraries accept them neither as authorities nor as issued by one.
#[derive(Debug)]
struct JupyterCertificate {
    named: Vec<CertificateDer<'static>>,
    others: Option<Arc<dyn ServerCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for JupyterCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.named.iter().any(|named| named == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let unknown = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let others = self.others.as_ref().ok_or_else(unknown)?;
        others.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
