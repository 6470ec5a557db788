//! The compact encoding in which a record is passed from its worker to the writer: numbers
//! little-endian, texts truncated at their bounds and preceded by a length.

use std::net::{IpAddr, Ipv6Addr};

use super::{CacheResult, LogRecord};
use crate::limits::{
    LOG_HOST_BYTES_MAX, LOG_METHOD_BYTES_MAX, LOG_NODE_BYTES_MAX, LOG_REFERER_BYTES_MAX,
    LOG_TARGET_BYTES_MAX, LOG_USER_AGENT_BYTES_MAX,
};

/// Length of the numbers at the start of a record, in bytes.
const FIXED_BYTES: usize = 8 + 16 + 1 + 1 + 2 + 5 * 8;

/// Maximum length of a record, in bytes.
pub(super) const RECORD_BYTES_MAX: usize = FIXED_BYTES
    + 7 * 2
    + LOG_METHOD_BYTES_MAX
    + LOG_TARGET_BYTES_MAX
    + LOG_HOST_BYTES_MAX
    + LOG_REFERER_BYTES_MAX
    + LOG_USER_AGENT_BYTES_MAX
    + 2 * LOG_NODE_BYTES_MAX;

const CACHE_RESULTS: [CacheResult; 7] = [
    CacheResult::None,
    CacheResult::Hit,
    CacheResult::Miss,
    CacheResult::Fill,
    CacheResult::Revalidated,
    CacheResult::Stream,
    CacheResult::Peer,
];

/// Appends `record` to `out`: at most [`RECORD_BYTES_MAX`] bytes.
pub(super) fn encode(record: &LogRecord<'_>, out: &mut Vec<u8>) {
    let mut fixed = [0u8; FIXED_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        fixed[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&record.unix_ms.to_le_bytes());
    put(&to_v6(record.client).octets());
    put(&[u8::from(record.version10)]);
    put(&[record.cache as u8]);
    put(&record.status.to_le_bytes());
    put(&record.bytes_sent.to_le_bytes());
    put(&record.total_us.to_le_bytes());
    put(&record.queue_us.to_le_bytes());
    put(&record.connect_us.to_le_bytes());
    put(&record.first_byte_us.to_le_bytes());
    out.extend_from_slice(&fixed);
    put_text(out, record.method, LOG_METHOD_BYTES_MAX);
    put_text(out, record.target, LOG_TARGET_BYTES_MAX);
    put_text(out, record.host, LOG_HOST_BYTES_MAX);
    put_text(out, record.referer, LOG_REFERER_BYTES_MAX);
    put_text(out, record.user_agent, LOG_USER_AGENT_BYTES_MAX);
    put_text(out, record.node.unwrap_or_default().as_bytes(), LOG_NODE_BYTES_MAX);
    put_text(out, record.accepted_by.unwrap_or_default().as_bytes(), LOG_NODE_BYTES_MAX);
}

/// Decodes the first record of `input`; `None` at its end.
///
/// # Panics
/// On bytes that [`encode`] did not write, which would be a bug in Skep.
pub(super) fn decode<'a>(input: &mut &'a [u8]) -> Option<LogRecord<'a>> {
    if input.is_empty() {
        return None;
    }
    Some(LogRecord {
        unix_ms: u64::from_le_bytes(take(input)),
        client: IpAddr::V6(Ipv6Addr::from(take::<16>(input))).to_canonical(),
        version10: take::<1>(input) == [1],
        cache: CACHE_RESULTS[usize::from(take::<1>(input)[0])],
        status: u16::from_le_bytes(take(input)),
        bytes_sent: u64::from_le_bytes(take(input)),
        total_us: u64::from_le_bytes(take(input)),
        queue_us: u64::from_le_bytes(take(input)),
        connect_us: u64::from_le_bytes(take(input)),
        first_byte_us: u64::from_le_bytes(take(input)),
        method: take_text(input),
        target: take_text(input),
        host: take_text(input),
        referer: take_text(input),
        user_agent: take_text(input),
        node: take_name(input),
        accepted_by: take_name(input),
    })
}

/// A name that was truncated within a character is returned without that character.
fn take_name<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    match take_text(input) {
        b"" => None,
        name => Some(valid_start(name)),
    }
}

fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8], bytes_max: usize) {
    let text = &text[..text.len().min(bytes_max)];
    // Every maximum is below 64 Ki (asserted below), so the length fits.
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

const _: () = assert!(RECORD_BYTES_MAX <= u16::MAX as usize);

fn take<const N: usize>(input: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(take_slice(input, N));
    bytes
}

fn take_text<'a>(input: &mut &'a [u8]) -> &'a [u8] {
    let length = u16::from_le_bytes(take(input));
    take_slice(input, usize::from(length))
}

fn take_slice<'a>(input: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, tail) = input.split_at(length);
    *input = tail;
    head
}

fn valid_start(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
