//! Selects the variant that answers a request, and makes compressed variants.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use skep_coding::{Encoder, levels};
use skep_http::RequestHead;
use skep_http::conditional::names_tag;
use skep_http::negotiate::{AcceptEncoding, Encoding};
use skep_segments::{Acquired, FetchError, Pins, Segment, SegmentStore};
use skep_telemetry::{CacheResult, CoreCounters, Counter};
use skep_units::SEGMENT_BYTES;

use crate::backend::compressed::{
    Busy, CompressedSegment, CompressionFlight, CompressionOutcome, Compressor, read,
};
use crate::backend::origin::Remotes;
use crate::http::client_pace::ClientPace;
use crate::http::stream::{Client, ObjectStream};
use crate::http::upstream::Upstream;
use crate::limits::{COMPRESSION_CHUNK_BYTES, COMPRESSION_GAIN_PART};
use crate::model::compressed::CompressedVariant;
use crate::model::object::{Compressed, Object};
use crate::model::resource::Resource;
use crate::peers::{HeadLease, HeadSought, PeerClient, read_all, renewing};

/// The variant that answers a request.
pub(crate) enum Selected<'r> {
    /// The plain object, or a sidecar; with its slot number.
    Own(usize, &'r Arc<Object>),
    Compressed(usize, Arc<CompressedVariant>),
    /// A compressed variant that has not been made yet.
    Missing(Encoding),
}

impl<'r> Selected<'r> {
    /// The best variant of `resource` for `request` (RFC 9110 12.5.3): a sidecar that the client accepts,
    /// since it costs nothing; otherwise a variant compressed by the route. A client that names the plain
    /// object by its tag gets that.
    #[inline]
    pub(crate) fn of(resource: &'r Resource, request: &RequestHead<'_, '_>) -> Self {
        let variants = &resource.variants;
        if !variants.is_varied() && resource.compressed.is_none() {
            return Self::plain(resource);
        }
        let accept = AcceptEncoding::parse(request);
        match accept.choose(variants.available()) {
            None => Self::compressed(resource, request, &accept),
            sidecar => {
                let (slot, object) = variants.get(sidecar);
                Self::Own(slot, object)
            }
        }
    }

    pub(crate) fn plain(resource: &'r Resource) -> Self {
        Self::Own(0, &resource.variants.plain)
    }

    fn compressed(
        resource: &'r Resource,
        request: &RequestHead<'_, '_>,
        accept: &AcceptEncoding,
    ) -> Self {
        let plain = &resource.variants.plain;
        let rules = resource.compressed.as_ref().zip(resource.route.compression.as_ref());
        let chosen = rules.filter(|(made, _)| !made.is_useless()).and_then(|(made, rules)| {
            let coding = accept.choose_among(&rules.codings)?;
            let is_unsafe = || {
                rules.is_for_private && resource.route.pool().is_some() && is_cross_site(request)
            };
            let is_plain = names_tag(request, plain.validators().etag) || is_unsafe();
            Some((made, coding)).filter(|_| !is_plain)
        });
        match chosen {
            None => Self::plain(resource),
            Some((made, coding)) => match made.get(coding) {
                Some(variant) => Self::Compressed(slot_of(coding), variant),
                None => Self::Missing(coding),
            },
        }
    }

    /// The object, with its slot number; `None`: it has yet to be made.
    #[inline]
    pub(crate) fn object(&self) -> Option<(usize, &Arc<Object>)> {
        match self {
            Self::Own(slot, object) => Some((*slot, object)),
            Self::Compressed(slot, variant) => Some((*slot, &variant.object)),
            Self::Missing(_) => None,
        }
    }
}

/// The slot of a variant in a coding, whether a sidecar or compressed here: an object has only one of the
/// two.
pub(crate) fn slot_of(coding: Encoding) -> usize {
    match coding {
        Encoding::Br => 1,
        Encoding::Zstd => 2,
        Encoding::Gzip => 3,
    }
}

/// Whether the request is cross-site: its author controls the parts that the response repeats (BREACH).
/// Browsers report this (Fetch Metadata).
pub(crate) fn is_cross_site(request: &RequestHead<'_, '_>) -> bool {
    request.fields.get("sec-fetch-site").is_some_and(|site| {
        !["same-origin", "same-site", "none"].iter().any(|own| site == own.as_bytes())
    })
}

/// The task that makes a variant. It continues even if the client that first requested the variant
/// disconnects.
pub(crate) struct CompressionTask {
    pub(crate) resource: Arc<Resource>,
    pub(crate) coding: Encoding,
    pub(crate) store: Arc<SegmentStore>,
    pub(crate) compressor: Arc<Compressor>,
    pub(crate) counters: Arc<CoreCounters>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) peer_client: Option<Rc<PeerClient>>,
    pub(crate) remotes: Rc<Remotes>,
    /// Address of the client.
    pub(crate) address: IpAddr,
}

/// The reason why nothing was compressed.
#[derive(Clone, Copy, Debug)]
enum Skipped {
    /// Compression gains too little, or the result is still too long.
    Useless,
    Busy,
    Memory,
    /// The plain bytes could not be fetched.
    Source,
}

impl From<Busy> for Skipped {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

impl From<FetchError> for Skipped {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::NoMemory => Self::Memory,
            _ => Self::Source,
        }
    }
}

impl CompressionTask {
    /// Makes the variant, unless another node has it.
    pub(crate) async fn run(self, flight: CompressionFlight) {
        let lease = match self.sought(&flight).await {
            HeadSought::Found(made) => {
                flight.heads().store().announce(flight.name());
                let object = self.object(&made);
                return flight.land(CompressionOutcome::Made(made), Some(object.segment_name(0)));
            }
            HeadSought::NotStored => return flight.land(CompressionOutcome::Useless, None),
            HeadSought::Granted(lease) => Some(lease),
            HeadSought::Nowhere => None,
        };
        flight.makes();
        let renew = lease.as_ref().map(HeadLease::renewer);
        let kept = renewing(self.make_and_keep(), || renew.iter().for_each(|renew| renew()));
        let is_known = match kept.await {
            Ok((made, object)) => {
                flight.land(CompressionOutcome::Made(made), Some(object.segment_name(0)));
                true
            }
            Err(skipped) => {
                self.counters.inc(skipped.counter());
                let is_useless = matches!(skipped, Skipped::Useless);
                let outcome = match is_useless {
                    true => CompressionOutcome::Useless,
                    false => CompressionOutcome::Skipped,
                };
                flight.land(outcome, None);
                is_useless
            }
        };
        if let Some(lease) = lease {
            lease.end(is_known);
        }
    }

    /// Asks other nodes, if they have the same object.
    async fn sought(&self, flight: &CompressionFlight) -> HeadSought<Compressed> {
        match self.peers() {
            Some(peers) => peers.seek_head(flight.name(), |head, _| read(head)).await,
            None => HeadSought::Nowhere,
        }
    }

    fn peers(&self) -> Option<&Rc<PeerClient>> {
        self.peer_client.as_ref().filter(|_| self.resource.is_of_all_nodes())
    }

    fn object(&self, made: &Compressed) -> Object {
        let Resource { route, variants, .. } = &*self.resource;
        Object::compressed(route, &variants.plain, self.coding, made)
    }

    async fn make_and_keep(&self) -> Result<(Compressed, Object), Skipped> {
        let (bytes, made) = self.make().await?;
        let object = self.object(&made);
        self.keep(&object, bytes).await?;
        let plain_bytes = self.resource.variants.plain.bytes();
        let [count, input, output] = counters_of(self.coding);
        self.counters.inc(count);
        self.counters.add(input, plain_bytes);
        self.counters.add(output, made.bytes.into());
        Ok((made, object))
    }

    /// Compresses the plain object, segment by segment.
    async fn make(&self) -> Result<(Vec<u8>, Compressed), Skipped> {
        let Resource { route, variants, .. } = &*self.resource;
        let plain = &variants.plain;
        let mut stream = self.stream(plain);
        // Awaited before a thread is reserved: a slow source must not occupy a compressor.
        let mut first = Some(stream.whole_segment(0).await?);
        let mut place = self.compressor.enter().await?;
        let level = match (&route.compression, place.is_hurried) {
            (Some(rules), false) => rules.level(self.coding),
            _ => *levels(self.coding).start(),
        };
        let bytes_max = plain.bytes() - plain.bytes() / COMPRESSION_GAIN_PART;
        let bytes_max = bytes_max.min(SEGMENT_BYTES) as usize;
        let (coding, bytes) = (self.coding, plain.bytes());
        let begun = place.run(move || Encoder::new(coding, level, Some(bytes))).await;
        let mut encoder = begun.ok_or(Skipped::Busy)?.map_err(|_| Skipped::Memory)?;
        for index in 0..plain.segments() {
            let segment = match first.take() {
                Some(first) => first,
                None => stream.whole_segment(index).await?,
            };
            let encoded = place.run(move || encode(encoder, &segment)).await;
            encoder = encoded.ok_or(Skipped::Busy)??;
            if encoder.ready_bytes() > bytes_max {
                return Err(Skipped::Useless);
            }
        }
        let finish = move || encoder.finish().map(|bytes| (digest_of(&bytes), bytes));
        let finished = place.run(finish).await.ok_or(Skipped::Busy)?;
        let (digest, bytes) = finished.map_err(|_| Skipped::Source)?;
        if bytes.is_empty() || bytes.len() > bytes_max {
            return Err(Skipped::Useless);
        }
        let made = Compressed { bytes: bytes.len() as u32, digest };
        Ok((bytes, made))
    }

    /// Stores the bytes in memory and announces them to the cluster.
    async fn keep(&self, object: &Object, bytes: Vec<u8>) -> Result<(), Skipped> {
        if !self.store.may_fill() {
            return Err(Skipped::Memory);
        }
        let made = CompressedSegment::made(bytes);
        let segment = match self.store.acquire(object.wanted(0)) {
            Acquired::Ready(segment) | Acquired::Growing(segment) => segment,
            Acquired::Fill(filler) => {
                let segment = Arc::clone(filler.segment());
                match self.peers() {
                    // A dropped sender counts as well.
                    Some(peers) => drop(peers.fill(filler, made).await),
                    None => read_all(&made, filler).await,
                }
                segment
            }
        };
        let whole = std::future::poll_fn(|cx| segment.poll_more(cx, segment.len() - 1)).await;
        whole?;
        Ok(())
    }

    fn stream<'a>(&'a self, plain: &'a Arc<Object>) -> ObjectStream<'a> {
        ObjectStream {
            store: &self.store,
            route: &self.resource.route,
            object: plain,
            counters: &self.counters,
            upstream: Upstream::of(
                &self.resource,
                plain,
                &self.remotes,
                self.peer_client.as_deref(),
            ),
            cache_result: CacheResult::Hit,
            file: None,
            prepared: None,
            client: Client { address: self.address, pins: &self.pins },
            pace: ClientPace::default(),
            ahead: VecDeque::new(),
            entered: None,
        }
    }
}

impl Skipped {
    fn counter(self) -> Counter {
        match self {
            Self::Useless => Counter::CompressionsUseless,
            Self::Busy => Counter::CompressionsBusy,
            Self::Memory => Counter::CompressionsMemory,
            Self::Source => Counter::CompressionsSource,
        }
    }
}

/// Encodes a whole segment.
fn encode(mut encoder: Encoder, segment: &Segment) -> Result<Encoder, Skipped> {
    let (mut buffer, mut at) = (vec![0; COMPRESSION_CHUNK_BYTES], 0);
    while at < segment.len() {
        let read = segment.read(at, &mut buffer).map_err(|_| Skipped::Memory)?;
        assert!(read > 0, "the segment is whole");
        encoder.push(&buffer[..read]).map_err(|_| Skipped::Memory)?;
        at += read as u32;
    }
    Ok(encoder)
}

fn digest_of(bytes: &[u8]) -> [u8; 8] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    [a, b, c, d, e, f, g, h]
}

/// The counters of compressions, of input bytes, and of output bytes.
pub(crate) fn counters_of(coding: Encoding) -> [Counter; 3] {
    match coding {
        Encoding::Br => {
            [Counter::CompressionsBr, Counter::CompressionInputBr, Counter::CompressionOutputBr]
        }
        Encoding::Gzip => [
            Counter::CompressionsGzip,
            Counter::CompressionInputGzip,
            Counter::CompressionOutputGzip,
        ],
        Encoding::Zstd => [
            Counter::CompressionsZstd,
            Counter::CompressionInputZstd,
            Counter::CompressionOutputZstd,
        ],
    }
}
