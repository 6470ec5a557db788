//! Nodes serve requests: they send what is in memory, and meanwhile fetch the segments after it.
//!
//! As in live nodes, a segment is sent as it arrives: its transfer to the client begins with the first byte
//! of its fetch, and the next one begins when both have ended. A request has one fetch of its own at a time,
//! so that a large object gets no more of a disk than a small one; a fetch that continues the preceding one
//! has no further latency.

use skep_policy::ServedObject;
use skep_units::NodeId;

use crate::fetch_table::WantedSegment;
use crate::limits::SEGMENTS_AHEAD;
use crate::request::{Pending, SendState};
use crate::world::{Event, OfferedLoad, Transfer, World};

impl World<'_> {
    /// Sends what is available, and fetches ahead.
    pub(crate) fn advance(&mut self, now: u64, id: u32) {
        if !matches!(self.requests[id as usize].sending, SendState::Nothing) {
            return;
        }
        let segments = self.requests[id as usize].part.segments();
        if segments.is_empty() {
            self.announce(now, id);
            return self.request_ended(now, id);
        }
        let first = self.requests[id as usize].sent;
        let mut end = first;
        while end < segments.end && self.is_there(now, id, end) {
            end += 1;
        }
        if end == first && self.requests[id as usize].is_arriving(first) {
            end += 1;
        }
        if end > first {
            self.announce(now, id);
            self.send(now, id, end);
        }
        self.look_ahead(now, id);
    }

    /// Looks up the segments after those being sent, and fetches the first missing one.
    fn look_ahead(&mut self, now: u64, id: u32) {
        loop {
            let request = &self.requests[id as usize];
            let segments = request.part.segments().end;
            let end = match request.sending {
                SendState::Nothing => request.sent + 1,
                SendState::Until(end, _) | SendState::Ahead(end) => end,
            };
            let is_ahead = request.looked_up >= (end + SEGMENTS_AHEAD).min(segments);
            if is_ahead || request.fetching.is_some() {
                return;
            }
            self.look_up(now, id);
        }
    }

    /// The first byte of a segment for which the request waits has arrived.
    pub(crate) fn segment_arrives(&mut self, now: u64, id: u32, segment: u32) {
        let request = &mut self.requests[id as usize];
        if let Some(pending) = request.pending.iter_mut().find(|it| it.segment == segment) {
            pending.has_arrived = true;
        }
        if request.sent == segment {
            self.advance(now, id);
        }
    }

    /// A segment for which the request waits has arrived completely.
    pub(crate) fn segment_ended(&mut self, now: u64, id: u32, segment: u32) {
        let request = &mut self.requests[id as usize];
        request.pending.retain(|pending| pending.segment != segment);
        request.fetching = request.fetching.filter(|fetching| *fetching != segment);
        match request.sending {
            SendState::Ahead(end) if end == segment + 1 => self.sent(now, id, end),
            SendState::Nothing if request.sent == segment => self.advance(now, id),
            _ => self.look_ahead(now, id),
        }
    }

    /// A link has completed a send.
    pub(crate) fn send_ended(&mut self, now: u64, id: u32) {
        let request = &self.requests[id as usize];
        let SendState::Until(end, started) = request.sending else { unreachable!("it is sending") };
        let bytes = request.part.bytes_of(request.sent..end);
        self.outcome.totals.sent_bytes += bytes;
        self.choosers[request.chooser as usize].send_ended(request.node, started, bytes);
        match request.is_pending(end - 1) {
            true => self.requests[id as usize].sending = SendState::Ahead(end),
            false => self.sent(now, id, end),
        }
    }

    /// Whether a segment is available completely; looks up the next one.
    fn is_there(&mut self, now: u64, id: u32, segment: u32) -> bool {
        let request = &self.requests[id as usize];
        match segment < request.looked_up {
            true => !request.is_pending(segment),
            false => self.look_up(now, id),
        }
    }

    /// Looks up the next segment in memory, or else has it fetched. Returns whether it was in memory.
    fn look_up(&mut self, now: u64, id: u32) -> bool {
        let request = &mut self.requests[id as usize];
        let object = &self.run.site.objects[request.object as usize];
        let segment = request.looked_up;
        request.looked_up += 1;
        let (number, bytes) =
            (object.segment_first + segment, request.part.bytes_of(segment..segment + 1));
        let node = request.node;
        let is_first = segment == request.part.segments().start;
        if is_first {
            self.memories.asked_for(node, request.object);
        }
        if self.memories.hit(node, number) {
            request.bytes.memory += bytes;
            request.is_hit |= is_first;
            return true;
        }
        let is_continued = request.continues_at == Some(segment);
        let wanted = WantedSegment {
            node,
            segment: number,
            bytes: object.segment_bytes(segment),
            is_continued,
            compute_ns: object.compute_ns,
        };
        let found = self.fetch(now, wanted, (id, segment));
        let request = &mut self.requests[id as usize];
        request.fetching = (!found.is_joined).then_some(segment);
        request.continues_at = found.is_from_source().then_some(segment + 1);
        *found.counts_in(&mut request.bytes) += bytes;
        request.pending.push(Pending { segment, has_arrived: found.has_arrived });
        false
    }

    /// Sends the head of the response, once.
    fn announce(&mut self, now: u64, id: u32) {
        let request = &mut self.requests[id as usize];
        if std::mem::replace(&mut request.is_announced, true) {
            return;
        }
        let object = &self.run.site.objects[request.object as usize];
        let said = ServedObject { node: NodeId(request.node), bytes: request.part.bytes() };
        // Policies learn nothing from parts.
        let whole = (request.part == object.whole() && object.bytes > 0).then_some(object.url_hash);
        let chooser = &mut self.choosers[request.chooser as usize];
        chooser.head(now, said, whole, now - request.began_ns);
    }

    fn send(&mut self, now: u64, id: u32, end: u32) {
        let request = &mut self.requests[id as usize];
        let node = request.node;
        let bytes = request.part.bytes_of(request.sent..end);
        let chooser = request.chooser as usize;
        self.transfer(now, node as usize, bytes, Transfer::Send(id));
        let started = self.rates[node as usize].virtual_bytes(now);
        self.requests[id as usize].sending = SendState::Until(end, started);
        self.choosers[chooser].send_started(node, started);
    }

    /// Everything up to segment `end` was sent.
    fn sent(&mut self, now: u64, id: u32, end: u32) {
        let request = &mut self.requests[id as usize];
        (request.sent, request.sending) = (end, SendState::Nothing);
        match end < request.part.segments().end {
            true => self.advance(now, id),
            false => self.request_ended(now, id),
        }
    }

    fn request_ended(&mut self, now: u64, id: u32) {
        let request = self.requests.remove(id as usize);
        let bytes = request.part.bytes();
        self.choosers[request.chooser as usize].ended(request.node);
        self.outcome.totals.requests += 1;
        self.outcome.totals.asked_bytes += bytes;
        let response_ns = now - request.began_ns;
        if request.is_measured {
            self.outcome.record(bytes, response_ns, request.bytes);
            self.outcome.hits += u64::from(request.is_hit);
        }
        if self.run.cluster.loss.is_some() {
            let loss = self.outcome.loss.as_mut();
            let windows = loss.map_or(&mut self.windows, |loss| &mut loss.windows);
            windows.record(request.began_ns, response_ns, request.bytes);
        }
        if let OfferedLoad::Closed { .. } | OfferedLoad::Ramp(_) = self.run.load {
            self.events.schedule(now, Event::Client(request.client));
        }
    }
}
