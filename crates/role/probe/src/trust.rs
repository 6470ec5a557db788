//! Which certificates are trusted: those of the machine, or those of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// There is nothing to verify servers by.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The file cannot be read, or holds something else.
    #[error("{}: expected certificates in PEM form (-----BEGIN CERTIFICATE-----), {found}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The machine has none.
    #[error(
        "this machine has no CA certificates to verify https servers by: install ca-certificates, or name yours with --ca FILE"
    )]
    NoneOnMachine,
}

/// Verifies by the certificates of the file `ca`, or else by those of the machine. Without any, all
/// handshakes fail; that is an error only where `is_needed`.
pub(crate) fn connector(ca: Option<&Path>, is_needed: bool) -> Result<TlsConnector, CaError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => add_file(&mut roots, path)?,
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            let (added, _) = roots.add_parsable_certificates(found);
            if added == 0 && is_needed {
                return Err(CaError::NoneOnMachine);
            }
        }
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Each handshake is measured in full.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), CaError> {
    let bad = |found: String| CaError::File { path: path.to_owned(), found };
    let text = std::fs::read(path).map_err(|error| bad(format!("cannot read it: {error}")))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| bad(format!("found {error}")))?;
        roots.add(certificate).map_err(|error| bad(format!("found {error}")))?;
    }
    match roots.is_empty() {
        true => Err(bad("found none".to_owned())),
        false => Ok(()),
    }
}
