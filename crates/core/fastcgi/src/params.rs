//! The parameters of a request (RFC 3875 4.1, and what PHP reads beside them).

use std::net::IpAddr;

use skep_http::gateway::GatewayRequest;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{HeadLimits, Known, Version};

use crate::record::{PairLong, ParamsWriter};
use crate::script::ScriptRule;
use crate::{FcgiRequestError, Script};

/// What an application expects beside the request.
#[derive(Clone, Copy, Debug)]
pub struct FcgiSettings<'a> {
    /// DOCUMENT_ROOT, as the application sees it, without a slash at its end.
    pub root: &'a [u8],
    /// Which script runs.
    pub script: ScriptRule<'a>,
    /// Further parameters, from the config alone. They replace those of the same name.
    pub params: &'a [(&'a [u8], &'a [u8])],
    /// SERVER_SOFTWARE.
    pub software: &'a [u8],
    /// Whether the application is to keep the connection. A worker of php-fpm then waits on it
    /// and serves nobody else.
    pub keep_conn: bool,
    /// Limits on heads of replies.
    pub reply_head: HeadLimits,
}

impl Default for FcgiSettings<'_> {
    fn default() -> Self {
        FcgiSettings {
            root: b"",
            script: ScriptRule::Below { mount: b"" },
            params: &[],
            software: b"skep",
            keep_conn: false,
            reply_head: RESPONSE_HEAD,
        }
    }
}

/// Writes all parameters. Returns the number of fields that were dropped because of their names.
pub(crate) fn write(
    out: &mut Vec<u8>,
    request: &GatewayRequest<'_>,
    settings: &FcgiSettings<'_>,
) -> Result<usize, FcgiRequestError> {
    let script = settings.script.split(request.path)?;
    let mut params = Params { writer: ParamsWriter::new(out), configured: settings.params };
    params.script(&script, settings.root)?;
    params.request(request)?;
    params.connection(request)?;
    params.add(b"GATEWAY_INTERFACE", b"CGI/1.1")?;
    params.add(b"SERVER_SOFTWARE", settings.software)?;
    // For PHP that was built to want it (`cgi.force_redirect`).
    params.add(b"REDIRECT_STATUS", b"200")?;
    let dropped = params.fields(request)?;
    for (name, value) in settings.params {
        params.writer.pair(name, value)?;
    }
    params.writer.end();
    Ok(dropped)
}

/// Writes the parameters of a GET of a path that the application itself answers, as php-fpm's
/// `ping.path` and `pm.status_path`: it compares SCRIPT_NAME, and wants SCRIPT_FILENAME.
pub(crate) fn write_probe(
    out: &mut Vec<u8>,
    path: &[u8],
    query: &[u8],
) -> Result<(), FcgiRequestError> {
    let mut params = ParamsWriter::new(out);
    for (name, value) in [
        (&b"SCRIPT_NAME"[..], path),
        (b"SCRIPT_FILENAME", path),
        (b"REQUEST_URI", path),
        (b"QUERY_STRING", query),
        (b"REQUEST_METHOD", b"GET"),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"GATEWAY_INTERFACE", b"CGI/1.1"),
    ] {
        params.pair(name, value)?;
    }
    params.end();
    Ok(())
}

struct Params<'o, 'a> {
    writer: ParamsWriter<'o>,
    configured: &'a [(&'a [u8], &'a [u8])],
}

impl Params<'_, '_> {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), FcgiRequestError> {
        if self.configured.iter().any(|(it, _)| *it == name) {
            return Ok(());
        }
        Ok(self.writer.pair(name, value)?)
    }

    fn script(&mut self, script: &Script, root: &[u8]) -> Result<(), FcgiRequestError> {
        self.add(b"SCRIPT_FILENAME", &[root, &script.name].concat())?;
        self.add(b"SCRIPT_NAME", &script.name)?;
        self.add(b"DOCUMENT_ROOT", root)?;
        self.add(b"DOCUMENT_URI", &[&script.name[..], &script.info].concat())?;
        if !script.info.is_empty() {
            self.add(b"PATH_INFO", &script.info)?;
            self.add(b"PATH_TRANSLATED", &[root, &script.info].concat())?;
        }
        Ok(())
    }

    fn request(&mut self, request: &GatewayRequest<'_>) -> Result<(), FcgiRequestError> {
        self.add(b"REQUEST_METHOD", request.method.as_str().as_bytes())?;
        self.add(b"REQUEST_URI", request.target)?;
        // RFC 3875 4.1.7: always there.
        self.add(b"QUERY_STRING", request.query.unwrap_or_default())?;
        let protocol: &[u8] = match request.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        };
        self.add(b"SERVER_PROTOCOL", protocol)?;
        if let Some(bytes) = request.content_length() {
            self.add(b"CONTENT_LENGTH", bytes.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn connection(&mut self, request: &GatewayRequest<'_>) -> Result<(), FcgiRequestError> {
        let text = |address: IpAddr| address.to_canonical().to_string().into_bytes();
        self.add(b"REMOTE_ADDR", &text(request.client.ip()))?;
        self.add(b"REMOTE_PORT", request.client.port().to_string().as_bytes())?;
        self.add(b"SERVER_ADDR", &text(request.local.ip()))?;
        self.add(b"SERVER_PORT", request.server_port.to_string().as_bytes())?;
        self.add(b"SERVER_NAME", request.server_name)?;
        // Many scripts take `HTTPS=off` for true.
        if request.is_tls {
            self.add(b"HTTPS", b"on")?;
        }
        self.add(b"REQUEST_SCHEME", if request.is_tls { b"https" } else { b"http" })
    }

    /// Fields as HTTP_*: lines of one name are joined, Cookie's by `; ` (RFC 9110 5.3, RFC 6265
    /// 5.4). How many were dropped.
    fn fields(&mut self, request: &GatewayRequest<'_>) -> Result<usize, FcgiRequestError> {
        if !request.host.is_empty() {
            self.add(b"HTTP_HOST", request.host)?;
        }
        let is_dropped = |name: &str| !has_own_variable(name) || name.eq_ignore_ascii_case("proxy");
        let dropped = request.fields.iter().filter(|(name, _)| is_dropped(name)).count();
        let kept: Vec<_> = request.end_to_end().filter(|(it, _)| has_own_variable(it)).collect();
        for (at, (name, first)) in kept.iter().enumerate() {
            let is_same = |(it, _): &&(&str, &[u8])| it.eq_ignore_ascii_case(name);
            if kept[..at].iter().any(|it| is_same(&it)) {
                continue;
            }
            if name.eq_ignore_ascii_case("content-type") {
                self.add(b"CONTENT_TYPE", first)?;
                continue;
            }
            let is_cookie = Known::of(name.as_bytes()) == Some(Known::Cookie);
            let separator: &[u8] = if is_cookie { b"; " } else { b", " };
            let values: Vec<&[u8]> =
                kept[at..].iter().filter(is_same).map(|(_, value)| *value).collect();
            self.add(&variable(name), &values.join(separator))?;
        }
        Ok(dropped)
    }
}

/// Whether no field of another name becomes the same variable. CGI reads `-` as `_`; PHP reads
/// `.` as `_`, too. `HTTP_REDIRECT_*` is read as what a server says of itself (CVE-2024-8927).
fn has_own_variable(name: &str) -> bool {
    let is_redirect = name.get(..9).is_some_and(|it| it.eq_ignore_ascii_case("redirect-"));
    !is_redirect && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// `HTTP_` and the name in upper case.
fn variable(name: &str) -> Vec<u8> {
    let upper = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    b"HTTP_".iter().copied().chain(name.bytes().map(upper)).collect()
}

impl From<PairLong> for FcgiRequestError {
    fn from(pair: PairLong) -> FcgiRequestError {
        FcgiRequestError::ParamLong { bytes: pair.bytes }
    }
}
