//! Certificates of servers that a user has named by `SSL_CERT_FILE` or `SSL_CERT_DIR`: each is trusted as it is, as Python and
//! OpenSSL do it. TLS libraries of Rust take the certificates there for authorities alone, and refuse a server that shows one.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// The file with certificates, and the directories with files of them. They replace those of the system.
const FILE: &str = "SSL_CERT_FILE";
const DIRECTORIES: &str = "SSL_CERT_DIR";

/// The protocols of HTTP, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why an authority's certificate is refused as a server's.
const IS_AUTHORITY: &str = "CaUsedAsEndEntity";

/// The configuration of connections to servers with a certificate that the user has named, beside others; `None` if none is
/// named.
pub(super) fn config() -> Option<ClientConfig> {
    let named = named();
    if named.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let made = Verifier::new(Arc::clone(&provider)).and_then(|others| {
        let trust = NamedCertificate { named, others: Arc::new(others), provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let verified = builder.dangerous().with_custom_certificate_verifier(Arc::new(trust));
        Ok(verified.with_no_client_auth())
    });
    let mut config = made.inspect_err(|error| tracing::debug!(%error, "no TLS trust anchors")).ok()?;
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Some(config)
}

/// The certificates in the named files. What cannot be read is left out: it is trusted less.
fn named() -> Vec<CertificateDer<'static>> {
    let file = std::env::var_os(FILE).map(PathBuf::from);
    let directories = std::env::var_os(DIRECTORIES).unwrap_or_default();
    let listed =
        std::env::split_paths(&directories).filter_map(|directory| std::fs::read_dir(directory).ok());
    let listed = listed.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let files = file.into_iter().chain(listed).filter(|path| path.is_file());
    let certificates = files.filter_map(|path| CertificateDer::pem_file_iter(path).ok());
    certificates.flatten().filter_map(Result::ok).collect()
}

/// Accepts a named certificate even if it is the server's own, in its time and for its names.
#[derive(Debug)]
struct NamedCertificate {
    named: Vec<CertificateDer<'static>>,
    others: Arc<dyn ServerCertVerifier>,
    provider: Arc<CryptoProvider>,
}

/// Says whether the certificate is refused only for what it is, or since another one with its issuer's name has not signed
/// it; not for its time, which is checked before.
fn is_refused_as_server(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
        ) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            format!("{other:?}").contains(IS_AUTHORITY)
        }
        _ => false,
    }
}

impl ServerCertVerifier for NamedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.others.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error)
                if is_refused_as_server(&error) && self.named.iter().any(|named| named == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;

    use super::*;

    /// Certificates for `localhost` from 2026-11-26 to 2126-11-02: one that says that it is an authority, as `openssl req
    /// -x509` makes them, one that says that it is none, one that the first has issued, and an authority with an RSA key.
    const CERTIFICATES: &[u8] = include_bytes!("certificates.pem");
    /// 2030-01-01.
    const WITHIN: u64 = 1_893_456_000;

    fn certificates() -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(CERTIFICATES).map(Result::unwrap).collect()
    }

    /// The judgement of a server that shows the certificate, when these are named.
    fn judged(named: &[usize], shown: usize, name: &str, seconds: u64) -> Result<ServerCertVerified, Error> {
        let all = certificates();
        let named: Vec<_> = named.iter().map(|&index| all[index].clone()).collect();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(named.iter().cloned());
        let others = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let trust = NamedCertificate { named, others: others.build().unwrap(), provider };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        trust.verify_server_cert(&all[shown], &[], &name, &[], now)
    }

    #[test]
    fn a_named_certificate_is_trusted_as_the_servers_own() {
        for shown in 0..4 {
            judged(&[shown], shown, "localhost", WITHIN).unwrap();
        }
        judged(&[0], 0, "127.0.0.1", WITHIN).unwrap();
        // An authority's.
        judged(&[0], 2, "localhost", WITHIN).unwrap();
    }

    #[test]
    fn a_named_certificate_is_trusted_beside_others_with_its_issuers_name() {
        for shown in 0..4 {
            for other in 0..4 {
                judged(&[other, shown], shown, "localhost", WITHIN).unwrap();
                judged(&[other, shown], shown, "localhost", 0).unwrap_err();
            }
        }
    }

    #[test]
    fn a_named_certificate_is_trusted_for_its_names_and_in_its_time() {
        for shown in 0..4 {
            judged(&[shown], shown, "other.example", WITHIN).unwrap_err();
            judged(&[shown], shown, "localhost", 0).unwrap_err();
            judged(&[shown], shown, "localhost", 10_000_000_000).unwrap_err();
        }
    }

    #[test]
    fn another_certificate_is_not_trusted() {
        for (named, shown) in [(0, 1), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (0, 3)] {
            judged(&[named], shown, "localhost", WITHIN).unwrap_err();
        }
    }
}
