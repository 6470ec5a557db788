//! Trusted certificates: those of the machine, or those of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::TlsConnector;

/// There are no certificates for the verification of servers.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The file cannot be read, or has other contents.
    #[error("{}: expected certificates in PEM form (-----BEGIN CERTIFICATE-----), {found}", path.display())]
    File {
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The machine has no certificates.
    #[error(
        "this machine has no CA certificates to verify https servers by: install ca-certificates, or name yours with --ca FILE"
    )]
    NoneOnMachine,
}

/// Verifies by the certificates of the file `ca`, or otherwise by those of the machine. Without any,
/// all handshakes fail; that is an error only if `is_needed`.
pub(crate) fn connector(ca: Option<&Path>, is_needed: bool) -> Result<TlsConnector, CaError> {
    let builder = ClientConfig::builder();
    let mut config = match ca {
        Some(path) => {
            let verifier = Arc::new(FileVerifier::read(path)?);
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        None => {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs().certs;
            let (added, _) = roots.add_parsable_certificates(found);
            if added == 0 && is_needed {
                return Err(CaError::NoneOnMachine);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Without resumption each handshake is measured in full.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Verifies by the certificates of a file, as usual, except that a server may present one of them
/// itself, even a CA certificate. `openssl req -x509` makes such certificates by default.
#[derive(Debug)]
struct FileVerifier {
    certificates: Vec<CertificateDer<'static>>,
    by_ca: Arc<WebPkiServerVerifier>,
}

impl FileVerifier {
    fn read(path: &Path) -> Result<Self, CaError> {
        let bad = |found: String| CaError::File { path: path.to_owned(), found };
        let text = std::fs::read(path).map_err(|error| bad(format!("cannot read it: {error}")))?;
        let (mut roots, mut certificates) = (RootCertStore::empty(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|error| bad(format!("found {error}")))?;
            roots.add(certificate.clone()).map_err(|error| bad(format!("found {error}")))?;
            certificates.push(certificate);
        }
        if roots.is_empty() {
            return Err(bad("found none".to_owned()));
        }
        let by_ca = WebPkiServerVerifier::builder(Arc::new(roots)).build();
        Ok(Self { certificates, by_ca: by_ca.map_err(|error| bad(error.to_string()))? })
    }
}

impl ServerCertVerifier for FileVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.by_ca.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // Its dates are valid: they are checked before the usage.
            Err(error) if is_ca_as_server(&error) && self.certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_ca.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_ca.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_ca.supported_verify_schemes()
    }
}

/// Whether a server presented a CA certificate as its own. The library has no type for this error.
pub(crate) fn is_ca_as_server(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.to_string().contains("CaUsedAsEndEntity")
        }
        _ => false,
    }
}
