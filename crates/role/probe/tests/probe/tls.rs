//! TLS: its handshake is a phase, and servers are verified.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use skep_probe::{ProbeFailure, ProbePhase, ProbePlan, ProbeSample};
use tempfile::TempDir;

use super::server::{Server, read_path, response};
use super::{kind, plan, run, run_until};

/// A server with a self-signed CA certificate, as `openssl req -x509` makes them, and the file with it;
/// the certificate expires in `last_year`.
fn self_signed(folder: &Path, name: &str, last_year: i32) -> (Server, PathBuf) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(last_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let file = folder.join(format!("{name}-{last_year}.pem"));
    write_pem(&file, &certificate);
    (tls_server(certificate, &key), file)
}

/// A certificate authority for tests.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        write_pem(&path, &self.certificate);
        path
    }

    /// A server with a certificate for `name`.
    fn server(&self, name: &str) -> Server {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        tls_server(certificate, &key)
    }
}

fn write_pem(path: &Path, certificate: &CertificateDer<'_>) {
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    fs::write(path, pem).unwrap();
}

fn tls_server(certificate: CertificateDer<'static>, key: &KeyPair) -> Server {
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    let config = Arc::new(config);
    Server::accepting(move |stream| serve(stream, Arc::clone(&config)))
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>) {
    let connection = ServerConnection::new(config).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    // A client that does not trust the certificate closes during the handshake.
    if !read_path(&mut stream).is_empty() {
        let _ = stream.write_all(&response("200 OK", "X-Skep-Node: tls-1\r\n", 1234));
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
}

fn measure(url: String, ca: Option<PathBuf>) -> ProbeSample {
    let folder = TempDir::new().unwrap();
    run(&ProbePlan { ca, ..plan(folder.path(), &[url]) }).remove(0)
}

#[test]
fn a_server_of_the_named_ca_is_measured_and_tls_is_a_phase() {
    let (folder, ca) = (TempDir::new().unwrap(), Ca::new());
    let (server, file) = (ca.server("127.0.0.1"), ca.write(folder.path(), "ca.pem"));
    let sample = measure(format!("https://{}/x", server.address()), Some(file));
    assert_eq!((kind(&sample), sample.body_bytes), ("none", 1234), "{sample:?}");
    assert_eq!(sample.node.as_deref(), Some("tls-1"));
    assert!(sample.phase_us(ProbePhase::Tls).unwrap() > 0, "{sample:?}");
    let sum: u64 = sample.phases_us.iter().flatten().sum();
    assert_eq!(sum, sample.total_us, "{sample:?}");
}

#[test]
fn a_redirect_may_lead_from_http_to_https() {
    let (folder, ca) = (TempDir::new().unwrap(), Ca::new());
    let (server, file) = (ca.server("127.0.0.1"), ca.write(folder.path(), "ca.pem"));
    let dispatcher = Server::new();
    let url = dispatcher.url(&format!("/to/https://{}/x", server.address()));
    let sample = measure(url, Some(file));
    assert_eq!((kind(&sample), sample.redirects), ("none", 1), "{sample:?}");
    assert!(sample.phase_us(ProbePhase::Tls).unwrap() > 0, "{sample:?}");
}

#[test]
fn servers_that_cannot_be_verified_are_a_failure_of_tls() {
    let (folder, ca, other) = (TempDir::new().unwrap(), Ca::new(), Ca::new());
    let files = [ca.write(folder.path(), "ca.pem"), other.write(folder.path(), "other.pem")];
    let (server, stranger) = (ca.server("127.0.0.1"), ca.server("example.org"));
    let plain = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 65_536]);
        let _ = stream.write_all(&response("400 Bad Request", "", 0));
    });
    for (address, file, text) in [
        (server.address(), &files[1], "invalid peer certificate"),
        (stranger.address(), &files[0], "not valid for name"),
        (plain.address(), &files[0], "TLS: "),
    ] {
        let sample = measure(format!("https://{address}/"), Some(file.clone()));
        let ProbeFailure { kind, text: said } = sample.failure.clone().unwrap_or_default();
        assert_eq!(kind, "tls", "{sample:?}");
        assert!(said.contains(text), "{said}");
        assert_eq!(sample.phase_us(ProbePhase::FirstByte), None);
    }
}

#[test]
fn a_file_without_certificates_is_named_before_anything_is_measured() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    for (text, found) in [
        ("nothing", "found none"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "found"),
    ] {
        fs::write(&file, text).unwrap();
        let plan = ProbePlan {
            ca: Some(file.clone()),
            ..plan(folder.path(), &["https://127.0.0.1:1/".to_owned()])
        };
        let error = run_until(&plan, std::future::pending(), |_| {}).unwrap_err().to_string();
        assert!(
            error.contains("ca.pem: expected certificates in PEM form") && error.contains(found),
            "{error}"
        );
        assert!(!plan.out.exists());
    }
}

#[test]
fn a_server_may_present_the_named_certificate_itself() {
    let folder = TempDir::new().unwrap();
    let (server, file) = self_signed(folder.path(), "127.0.0.1", 4000);
    let sample = measure(format!("https://{}/", server.address()), Some(file.clone()));
    assert_eq!((kind(&sample), sample.body_bytes), ("none", 1234), "{sample:?}");
    // Name and dates are checked, and it must be exactly this certificate.
    let (expired, expired_file) = self_signed(folder.path(), "127.0.0.1", 2001);
    let (stranger, stranger_file) = self_signed(folder.path(), "example.org", 4000);
    for (address, file, said) in [
        (expired.address(), expired_file, "certificate expired"),
        (stranger.address(), stranger_file.clone(), "not valid for name"),
        (stranger.address(), file, "the server's certificate is that of a CA, and none of --ca"),
        (server.address(), stranger_file, "is that of a CA, and none of --ca"),
    ] {
        let sample = measure(format!("https://{address}/"), Some(file));
        let ProbeFailure { kind, text } = sample.failure.clone().unwrap_or_default();
        assert_eq!(kind, "tls", "{sample:?}");
        assert!(text.contains(said), "{text}");
    }
}
