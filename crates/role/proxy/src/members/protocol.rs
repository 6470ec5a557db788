//! What the members of a group speak, and what each protocol needs beside a request.

use std::fmt;
use std::sync::Arc;

use skep_ajp::{AjpError, AjpSettings, JkActivation};
use skep_fastcgi::{FcgiError, FcgiRequestError, FcgiSettings, ScriptRule};

/// What the members of a group speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProtocol {
    /// HTTP/1.1.
    Http,
    Fcgi(Arc<FcgiSpec>),
    Ajp(Arc<AjpSpec>),
}

/// What FastCGI applications are told beside a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcgiSpec {
    /// DOCUMENT_ROOT as they see it, without a slash at its end.
    pub root: Box<[u8]>,
    pub script: ScriptSpec,
    /// Further parameters; they replace those of the same name.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
    /// SERVER_SOFTWARE.
    pub software: Box<[u8]>,
    /// Whether connections are kept: each takes a worker of php-fpm.
    pub keep_conn: bool,
    /// Most of a body of unknown length that is collected, so that its length is known. Over it: 411.
    pub collect_bytes_max: u64,
}

/// Which script runs; see [`ScriptRule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSpec {
    Extension { extension: Box<[u8]>, index: Box<[u8]> },
    FrontController { extension: Box<[u8]>, front: Box<[u8]> },
    Always(Box<[u8]>),
    Below { mount: Box<[u8]> },
}

/// What servlet engines are told beside a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AjpSpec {
    pub packet_bytes_max: usize,
    pub secret: Option<Secret>,
    pub ping: PingSettings,
}

/// When a connection is asked before it gets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Time for which it was idle, at least.
    pub idle_ms: u64,
    /// Time for the answer.
    pub timeout_ms: u64,
}

/// What must not get into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// Why what an application server said is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GatewayFault {
    #[error("AJP: {0}")]
    Ajp(#[from] AjpError),
    #[error("FastCGI: {0}")]
    Fcgi(#[from] FcgiError),
}

impl MemberProtocol {
    /// Its name in the config.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Fcgi(_) => "fastcgi",
            Self::Ajp(_) => "ajp",
        }
    }
}

impl FcgiSpec {
    /// Runs `job` on the codec's form of it.
    pub(crate) fn with_settings<R>(&self, job: impl FnOnce(&FcgiSettings<'_>) -> R) -> R {
        let params: Vec<_> =
            self.params.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        job(&FcgiSettings {
            root: &self.root,
            script: self.script.rule(),
            params: &params,
            software: &self.software,
            keep_conn: self.keep_conn,
            ..FcgiSettings::default()
        })
    }

    /// `error` of a request for `path`, in words.
    pub(crate) fn explain(&self, error: FcgiRequestError, path: &[u8]) -> String {
        let text = String::from_utf8_lossy;
        let expected = match &self.script {
            _ if error != FcgiRequestError::NoScript => return error.to_string(),
            // Every path leads to one.
            ScriptSpec::Always(_) | ScriptSpec::FrontController { .. } => return error.to_string(),
            ScriptSpec::Below { mount } => format!("a path below {}", text(mount)),
            ScriptSpec::Extension { extension, index } => {
                let folder = match index.is_empty() {
                    true => String::new(),
                    false => format!(", or that ends with a slash, for {}", text(index)),
                };
                format!("a path with a script, which ends in {}{folder}", text(extension))
            }
        };
        format!("expected {expected}, found {}", text(path))
    }
}

impl ScriptSpec {
    fn rule(&self) -> ScriptRule<'_> {
        match self {
            Self::Extension { extension, index } => ScriptRule::Extension { extension, index },
            Self::FrontController { extension, front } => {
                ScriptRule::FrontController { extension, front }
            }
            Self::Always(script) => ScriptRule::Always(script),
            Self::Below { mount } => ScriptRule::Below { mount },
        }
    }
}

impl AjpSpec {
    /// `is_draining`: the server gets the requests of its sessions only, and is told so.
    pub(crate) fn settings(&self, is_draining: bool) -> AjpSettings<'_> {
        AjpSettings {
            activation: is_draining.then_some(JkActivation::Disabled),
            packet_bytes_max: self.packet_bytes_max,
            secret: self.secret.as_ref().map(|secret| &*secret.0),
            ..AjpSettings::default()
        }
    }
}

impl Secret {
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
