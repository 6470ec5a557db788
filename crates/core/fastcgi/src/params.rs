//! The parameters of a request (RFC 3875 4.1, and others that PHP reads).

use skep_http::encode::{write_address, write_u64};
use skep_http::gateway::GatewayRequest;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{HeadLimits, Known, Version};

use crate::record::{PairLong, ParamsWriter};
use crate::script::ScriptRule;
use crate::{FcgiRequestError, Script};

/// Settings of an application, besides the request.
#[derive(Clone, Copy, Debug)]
pub struct FcgiSettings<'a> {
    /// DOCUMENT_ROOT from the application's view, without a trailing slash.
    pub root: &'a [u8],
    /// How the script is selected.
    pub script: ScriptRule<'a>,
    /// Additional parameters, only from the config. They replace those with the same name.
    pub params: &'a [(&'a [u8], &'a [u8])],
    /// SERVER_SOFTWARE.
    pub software: &'a [u8],
    /// Whether to ask the application to keep the connection. A worker of php-fpm then waits on it,
    /// and serves no other client.
    pub keep_conn: bool,
    /// Limits on the heads of replies.
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

/// Writes all parameters. Returns the number of fields dropped because of their names.
pub(crate) fn write(
    out: &mut Vec<u8>,
    request: &GatewayRequest<'_>,
    settings: &FcgiSettings<'_>,
) -> Result<usize, FcgiRequestError> {
    let script = settings.script.split(request.path)?;
    let (writer, configured, text) = (ParamsWriter::new(out), settings.params, Vec::new());
    let mut params = Params { writer, configured, text };
    params.script(&script, settings.root)?;
    params.request(request)?;
    params.connection(request)?;
    params.add(b"GATEWAY_INTERFACE", b"CGI/1.1")?;
    params.add(b"SERVER_SOFTWARE", settings.software)?;
    // For PHP builds that require it (`cgi.force_redirect`).
    params.add(b"REDIRECT_STATUS", b"200")?;
    let dropped = params.fields(request)?;
    for (name, value) in settings.params {
        params.writer.pair(name, &[value])?;
    }
    params.writer.end();
    Ok(dropped)
}

/// Writes the parameters of a GET of a path that the application itself answers, such as php-fpm's
/// `ping.path` and `pm.status_path`: it compares SCRIPT_NAME, and requires SCRIPT_FILENAME.
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
        params.pair(name, &[value])?;
    }
    params.end();
    Ok(())
}

struct Params<'o, 'a> {
    writer: ParamsWriter<'o>,
    configured: &'a [(&'a [u8], &'a [u8])],
    /// Scratch buffer for a value that must be formatted first.
    text: Vec<u8>,
}

impl Params<'_, '_> {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), FcgiRequestError> {
        self.add_parts(name, &[value])
    }

    /// The same for a value in parts.
    fn add_parts(&mut self, name: &[u8], value: &[&[u8]]) -> Result<(), FcgiRequestError> {
        if self.configured.iter().any(|(it, _)| *it == name) {
            return Ok(());
        }
        Ok(self.writer.pair(name, value)?)
    }

    /// The same for a value that `write` appends.
    fn add_written(
        &mut self,
        name: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), FcgiRequestError> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        write(&mut text);
        let added = self.add(name, &text);
        self.text = text;
        added
    }

    fn script(&mut self, script: &Script, root: &[u8]) -> Result<(), FcgiRequestError> {
        self.add_parts(b"SCRIPT_FILENAME", &[root, &script.name])?;
        self.add(b"SCRIPT_NAME", &script.name)?;
        self.add(b"DOCUMENT_ROOT", root)?;
        self.add_parts(b"DOCUMENT_URI", &[&script.name, &script.info])?;
        if !script.info.is_empty() {
            self.add(b"PATH_INFO", &script.info)?;
            self.add_parts(b"PATH_TRANSLATED", &[root, &script.info])?;
        }
        Ok(())
    }

    fn request(&mut self, request: &GatewayRequest<'_>) -> Result<(), FcgiRequestError> {
        self.add(b"REQUEST_METHOD", request.method.as_str().as_bytes())?;
        self.add(b"REQUEST_URI", request.target)?;
        // RFC 3875 4.1.7: always present.
        self.add(b"QUERY_STRING", request.query.unwrap_or_default())?;
        let protocol: &[u8] = match request.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        };
        self.add(b"SERVER_PROTOCOL", protocol)?;
        if let Some(bytes) = request.content_length() {
            self.add_written(b"CONTENT_LENGTH", |text| write_u64(text, bytes))?;
        }
        Ok(())
    }

    fn connection(&mut self, request: &GatewayRequest<'_>) -> Result<(), FcgiRequestError> {
        let (client, local) = (request.client, request.local);
        let (client_ip, local_ip) = (client.ip().to_canonical(), local.ip().to_canonical());
        self.add_written(b"REMOTE_ADDR", |text| write_address(text, client_ip))?;
        self.add_written(b"REMOTE_PORT", |text| write_u64(text, client.port().into()))?;
        self.add_written(b"SERVER_ADDR", |text| write_address(text, local_ip))?;
        self.add_written(b"SERVER_PORT", |text| write_u64(text, request.server_port.into()))?;
        self.add(b"SERVER_NAME", request.server_name)?;
        // Many scripts treat `HTTPS=off` as true.
        if request.is_tls {
            self.add(b"HTTPS", b"on")?;
        }
        self.add(b"REQUEST_SCHEME", if request.is_tls { b"https" } else { b"http" })
    }

    /// Writes fields as HTTP_*: lines with the same name are joined, those of Cookie with `; ` (RFC
    /// 9110 5.3, RFC 6265 5.4). Returns how many were dropped.
    fn fields(&mut self, request: &GatewayRequest<'_>) -> Result<usize, FcgiRequestError> {
        if !request.host.is_empty() {
            self.add(b"HTTP_HOST", request.host)?;
        }
        let is_dropped = |name: &str| !has_own_variable(name) || name.eq_ignore_ascii_case("proxy");
        let dropped = request.fields.iter().filter(|(name, _)| is_dropped(name)).count();
        let mut kept = Vec::with_capacity(request.fields.len());
        kept.extend(request.end_to_end().filter(|(it, _)| has_own_variable(it)));
        let (mut variable, mut parts) = (Vec::new(), Vec::new());
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
            parts.clear();
            for (_, value) in kept[at..].iter().filter(is_same) {
                parts.extend([separator, value]);
            }
            write_variable(&mut variable, name);
            self.add_parts(&variable, parts.get(1..).unwrap_or_default())?;
        }
        Ok(dropped)
    }
}

/// Whether no other field name maps to the same variable. CGI maps `-` to `_`; PHP also maps `.` to
/// `_`. `HTTP_REDIRECT_*` is read as a statement of the server itself (CVE-2024-8927).
fn has_own_variable(name: &str) -> bool {
    let is_redirect = name.get(..9).is_some_and(|it| it.eq_ignore_ascii_case("redirect-"));
    // Without a branch per byte.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() | (byte == b'-');
    !is_redirect && name.bytes().fold(true, |all, byte| all & is_plain(byte))
}

/// Sets `variable` to `HTTP_` followed by the name in upper case.
fn write_variable(variable: &mut Vec<u8>, name: &str) {
    const PREFIX: &[u8] = b"HTTP_";
    variable.clear();
    variable.extend_from_slice(PREFIX);
    variable.extend_from_slice(name.as_bytes());
    for byte in &mut variable[PREFIX.len()..] {
        *byte = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
    }
}

impl From<PairLong> for FcgiRequestError {
    fn from(pair: PairLong) -> FcgiRequestError {
        FcgiRequestError::ParamLong { bytes: pair.bytes }
    }
}
