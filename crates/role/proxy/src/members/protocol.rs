//! The protocol of a group's members, and the settings that each protocol requires.

use std::fmt;
use std::sync::Arc;

use skep_ajp::{AjpError, AjpSettings, JkActivation};
use skep_fastcgi::{FcgiError, FcgiRequestError, FcgiSettings, ScriptRule};

/// The protocol of a group's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProtocol {
    /// HTTP/1.1.
    Http,
    Fcgi(Arc<FcgiSpec>),
    Ajp(Arc<AjpSpec>),
}

/// Settings of FastCGI applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcgiSpec {
    /// DOCUMENT_ROOT in the application's view, without a slash at its end.
    pub root: Box<[u8]>,
    pub script: ScriptSpec,
    /// Additional parameters; they replace those of the same name.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
    /// SERVER_SOFTWARE.
    pub software: Box<[u8]>,
    /// Whether connections are kept: each occupies a worker of php-fpm.
    pub keep_conn: bool,
    /// Bytes of a body of unknown length that are collected to determine its length. A longer body is
    /// refused with 411.
    pub collect_bytes_max: u64,
}

/// How the script is determined; see [`ScriptRule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptSpec {
    Extension { extension: Box<[u8]>, index: Box<[u8]> },
    FrontController { extension: Box<[u8]>, front: Box<[u8]> },
    Always(Box<[u8]>),
    Below { mount: Box<[u8]> },
}

/// Settings of servlet engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AjpSpec {
    pub packet_bytes_max: usize,
    pub secret: Option<Secret>,
    pub ping: PingSettings,
}

/// When a connection is checked before it gets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Idle time from which it is checked.
    pub idle_ms: u64,
    /// Time limit for the answer.
    pub timeout_ms: u64,
}

/// A value that must not be logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

/// Why the response of an application server is not a valid reply.
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
    /// Runs `job` with the settings in the form of the codec.
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

    /// Describes the `error` of a request for `path`.
    pub(crate) fn explain(&self, error: FcgiRequestError, path: &[u8]) -> String {
        let text = String::from_utf8_lossy;
        let expected = match &self.script {
            _ if error != FcgiRequestError::NoScript => return error.to_string(),
            // Every path leads to a script.
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
    /// `is_draining`: the server gets only requests of its sessions, and is informed of that.
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
