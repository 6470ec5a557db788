//! Writes FORWARD_REQUEST: the head of a request, in one packet (`ajpv13a.xml`).

use skep_http::encode::{write_address, write_u64};
use skep_http::gateway::GatewayRequest;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{HeadLimits, Version};

use crate::AjpRequestError;
use crate::codes::{
    ATTRIBUTE_METHOD, ATTRIBUTE_NAMED, ATTRIBUTE_QUERY, ATTRIBUTE_SECRET,
    ATTRIBUTE_TLS_CERTIFICATE, ATTRIBUTE_TLS_CIPHER, ATTRIBUTE_TLS_KEY_BITS, ATTRIBUTE_TLS_SESSION,
    ATTRIBUTES_END, FORWARD_REQUEST, NAME_CODE, NAME_CONTENT_LENGTH, NAME_HOST, NAMED_ACTIVATION,
    NAMED_LOCAL_ADDR, NAMED_REMOTE_PORT, NAMED_TLS_PROTOCOL, NULL_STRING, STORED_METHOD, TO_SERVER,
    method_code, request_name_code,
};
use crate::limits::{NAME_BYTES_MAX, PACKET_BYTES_DEFAULT, PACKET_HEAD_BYTES};

/// Settings of a server, besides the request.
#[derive(Clone, Copy, Debug)]
pub struct AjpSettings<'a> {
    /// The server's `packetSize`, [`PACKET_BYTES_DEFAULT`] to [`crate::limits::PACKET_BYTES_MAX`].
    pub packet_bytes_max: usize,
    /// The server's `secret`; Tomcat does not start without one unless configured to.
    pub secret: Option<&'a [u8]>,
    /// The activation state sent to a load-balancing valve of the server.
    pub activation: Option<JkActivation>,
    /// TLS attributes of the client's connection, if it is encrypted.
    pub tls: TlsAttributes<'a>,
    /// Limits on the heads of replies.
    pub reply_head: HeadLimits,
}

impl Default for AjpSettings<'_> {
    fn default() -> Self {
        AjpSettings {
            packet_bytes_max: PACKET_BYTES_DEFAULT,
            secret: None,
            activation: None,
            tls: TlsAttributes::default(),
            reply_head: RESPONSE_HEAD,
        }
    }
}

/// State of a server at its balancer, as read by Tomcat's `LoadBalancerDrainingValve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JkActivation {
    /// Accepts new sessions.
    Active,
    /// Drains: the valve redirects clients without a session.
    Disabled,
    /// Receives no requests.
    Stopped,
}

/// Attributes of a client's encrypted connection, which servlets can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsAttributes<'a> {
    /// Such as `TLSv1.3`.
    pub protocol: Option<&'a [u8]>,
    pub cipher: Option<&'a [u8]>,
    /// Size of the cipher's key, in bits.
    pub key_bits: Option<u16>,
    pub session: Option<&'a [u8]>,
    /// The client's certificate, in PEM.
    pub certificate: Option<&'a [u8]>,
}

/// Appends the packet.
///
/// # Errors
/// It does not fit; `out` is unchanged.
pub(crate) fn write(
    out: &mut Vec<u8>,
    request: &GatewayRequest<'_>,
    settings: &AjpSettings<'_>,
) -> Result<(), AjpRequestError> {
    let start = out.len();
    let written = write_payload(out, request, settings).and_then(|()| {
        let bytes = out.len() - start;
        let bytes_max = settings.packet_bytes_max;
        let is_too_large = bytes > bytes_max;
        if is_too_large { Err(AjpRequestError::TooLarge { bytes, bytes_max }) } else { Ok(bytes) }
    });
    match written {
        Ok(bytes) => {
            let payload = ((bytes - PACKET_HEAD_BYTES) as u16).to_be_bytes();
            out[start + 2..][..2].copy_from_slice(&payload);
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Lengths above 16 bits are truncated here; such a packet is then too large.
fn write_payload(
    out: &mut Vec<u8>,
    request: &GatewayRequest<'_>,
    settings: &AjpSettings<'_>,
) -> Result<(), AjpRequestError> {
    out.extend_from_slice(&TO_SERVER);
    // The length is filled in later.
    out.extend_from_slice(&[0, 0, FORWARD_REQUEST]);
    out.push(method_code(request.method.as_str()).unwrap_or(STORED_METHOD));
    write_string(
        out,
        match request.version {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        },
    );
    write_string(out, request.path);
    write_string_by(out, |out| write_address(out, request.client.ip().to_canonical()));
    // The client's host name, which is not resolved.
    write_u16(out, NULL_STRING);
    write_string(out, request.server_name);
    write_u16(out, request.server_port);
    out.push(u8::from(request.is_tls));
    write_fields(out, request)?;
    write_attributes(out, request, settings);
    Ok(())
}

fn write_fields(out: &mut Vec<u8>, request: &GatewayRequest<'_>) -> Result<(), AjpRequestError> {
    let count_at = out.len();
    write_u16(out, 0);
    let mut count: u16 = 0;
    if !request.host.is_empty() {
        out.extend_from_slice(&[NAME_CODE, NAME_HOST]);
        write_string(out, request.host);
        count += 1;
    }
    if let Some(bytes) = request.content_length() {
        out.extend_from_slice(&[NAME_CODE, NAME_CONTENT_LENGTH]);
        write_string_by(out, |out| write_u64(out, bytes));
        count += 1;
    }
    for (name, value) in request.end_to_end() {
        match request_name_code(name) {
            Some(code) => out.extend_from_slice(&[NAME_CODE, code]),
            None if name.len() > NAME_BYTES_MAX => {
                return Err(AjpRequestError::NameLong { bytes: name.len() });
            }
            None => write_string(out, name.as_bytes()),
        }
        write_string(out, value);
        count = count.saturating_add(1);
    }
    out[count_at..][..2].copy_from_slice(&count.to_be_bytes());
    Ok(())
}

fn write_attributes(out: &mut Vec<u8>, request: &GatewayRequest<'_>, settings: &AjpSettings<'_>) {
    let method = request.method.as_str();
    let by_name = method_code(method).is_none().then_some(method.as_bytes());
    let strings = [
        (ATTRIBUTE_SECRET, settings.secret),
        (ATTRIBUTE_METHOD, by_name),
        (ATTRIBUTE_QUERY, request.query),
    ];
    write_present(out, &strings);
    if request.is_tls {
        let tls = &settings.tls;
        let strings = [
            (ATTRIBUTE_TLS_CERTIFICATE, tls.certificate),
            (ATTRIBUTE_TLS_CIPHER, tls.cipher),
            (ATTRIBUTE_TLS_SESSION, tls.session),
        ];
        write_present(out, &strings);
        if let Some(bits) = tls.key_bits {
            out.push(ATTRIBUTE_TLS_KEY_BITS);
            write_u16(out, bits);
        }
        if let Some(protocol) = tls.protocol {
            write_named(out, NAMED_TLS_PROTOCOL, protocol);
        }
    }
    write_named_by(out, NAMED_REMOTE_PORT, |out| write_u64(out, request.client.port().into()));
    write_named_by(out, NAMED_LOCAL_ADDR, |out| {
        write_address(out, request.local.ip().to_canonical());
    });
    if let Some(activation) = settings.activation {
        write_named(
            out,
            NAMED_ACTIVATION,
            match activation {
                JkActivation::Active => b"ACT",
                JkActivation::Disabled => b"DIS",
                JkActivation::Stopped => b"STP",
            },
        );
    }
    out.push(ATTRIBUTES_END);
}

fn write_present(out: &mut Vec<u8>, attributes: &[(u8, Option<&[u8]>)]) {
    for (code, value) in attributes {
        if let Some(value) = value {
            out.push(*code);
            write_string(out, value);
        }
    }
}

fn write_named(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write_named_by(out, name, |out| out.extend_from_slice(value));
}

/// The same with a value that `write` appends.
fn write_named_by(out: &mut Vec<u8>, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
    out.push(ATTRIBUTE_NAMED);
    write_string(out, name);
    write_string_by(out, write);
}

fn write_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Length, bytes, NUL.
fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(!bytes.contains(&0), "no string of a request has a NUL");
    write_u16(out, bytes.len() as u16);
    out.extend_from_slice(bytes);
    out.push(0);
}

/// The same with bytes that `write` appends.
fn write_string_by(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len() + 2;
    write_u16(out, 0);
    write(out);
    let length = (out.len() - start) as u16;
    out[start - 2..start].copy_from_slice(&length.to_be_bytes());
    out.push(0);
}
