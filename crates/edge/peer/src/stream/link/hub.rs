//! The interface between the handler and all links.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use skep_wire::cache::Reason;
use skep_wire::cache::frame::write_frame;
use skep_wire::message::Name;
use tokio::sync::Notify;

use super::{LinkEvent, LinkId, LinkMessage, LinkSettings, Lost};
use crate::limits::LINK_BUFFER_BYTES_KEPT_MAX;
use crate::stream::counts::{StreamCount, StreamCounts};

/// The handler's interface for sending.
#[derive(Debug)]
pub struct Outbox<Out> {
    lines: BTreeMap<LinkId, Rc<Line>>,
    /// Links that end as soon as the handler returns.
    ending: VecDeque<(LinkId, Lost)>,
    queue_bytes_max: usize,
    counts: Arc<StreamCounts>,
    frame: Vec<u8>,
    speaks: PhantomData<fn(&Out)>,
}

impl<Out: LinkMessage> Outbox<Out> {
    /// Sends `message` on `link`, after all earlier ones. Returns `false` if the link has ended, or ends
    /// because too many bytes are queued.
    pub fn send(&mut self, link: LinkId, message: &Out) -> bool {
        self.make_frame(message);
        self.push(link)
    }

    /// Sends `message` on all links.
    pub fn send_all(&mut self, message: &Out) {
        self.make_frame(message);
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            // The handler gets an event for each link that ends.
            let _ = self.push(link);
        }
    }

    fn make_frame(&mut self, message: &Out) {
        self.frame.clear();
        write_frame(&mut self.frame, &message.to_payload());
    }

    fn push(&mut self, link: LinkId) -> bool {
        let Some(line) = self.lines.get(&link) else { return false };
        if line.is_over() {
            return false;
        }
        if line.queued_bytes() + self.frame.len() > self.queue_bytes_max {
            line.finish();
            self.ending.push_back((link, Lost::Overflow));
            return false;
        }
        line.push(&self.frame);
        self.counts.count(StreamCount::Sent);
        true
    }
}

impl<Out> Outbox<Out> {
    /// Ends `link`; the handler gets an event.
    pub fn close(&mut self, link: LinkId) {
        self.ending.push_back((link, Lost::Dropped));
    }

    /// Bytes queued on `link`, for pacing long transfers.
    pub fn queued_bytes(&self, link: LinkId) -> usize {
        self.lines.get(&link).map_or(0, |line| line.queued_bytes())
    }
}

/// The type of a handler.
pub(super) type Handler<In, Out, C> = Box<dyn FnMut(LinkEvent<In, C>, &mut Outbox<Out>) + Send>;

/// The hub, shared by the tasks of its thread. Never borrowed over an `await`.
pub(super) type Shared<In, Out, C> = Rc<RefCell<Hub<In, Out, C>>>;

/// The handler and its links.
pub(super) struct Hub<In, Out, C> {
    handler: Handler<In, Out, C>,
    outbox: Outbox<Out>,
    links_max: usize,
    next_link: u64,
}

impl<In, Out, C> Hub<In, Out, C> {
    pub(super) fn new(
        settings: &LinkSettings,
        counts: &Arc<StreamCounts>,
        handler: Handler<In, Out, C>,
    ) -> Shared<In, Out, C> {
        let outbox = Outbox {
            lines: BTreeMap::new(),
            ending: VecDeque::new(),
            queue_bytes_max: settings.queue_bytes_max,
            counts: Arc::clone(counts),
            frame: Vec::new(),
            speaks: PhantomData,
        };
        Rc::new(RefCell::new(Self { handler, outbox, links_max: settings.links_max, next_link: 0 }))
    }

    /// Runs the handler for an event, and ends the links that it closed or that overflowed.
    pub(super) fn tell(&mut self, event: LinkEvent<In, C>) {
        (self.handler)(event, &mut self.outbox);
        self.settle();
    }

    /// Starts a link with `peer`, and ends an earlier one.
    pub(super) fn begin(&mut self, peer: &Name) -> Result<(LinkId, Rc<Line>), Reason> {
        self.end_of(peer, Lost::Replaced);
        if self.outbox.lines.len() >= self.links_max {
            return Err(Reason::Full);
        }
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let line = Rc::new(Line::new(peer.clone()));
        self.outbox.lines.insert(link, Rc::clone(&line));
        Ok((link, line))
    }

    /// Ends `link`, unless it has already ended.
    pub(super) fn end(&mut self, link: LinkId, why: Lost) {
        self.outbox.ending.push_back((link, why));
        self.settle();
    }

    /// Ends the link with `peer`, if there is one.
    pub(super) fn end_of(&mut self, peer: &Name, why: Lost) {
        let found = self.outbox.lines.iter().find(|(_, line)| line.peer == *peer);
        if let Some((&link, _)) = found {
            self.end(link, why);
        }
    }

    pub(super) fn counts(&self) -> &Arc<StreamCounts> {
        &self.outbox.counts
    }

    fn settle(&mut self) {
        while let Some((link, why)) = self.outbox.ending.pop_front() {
            let Some(line) = self.outbox.lines.remove(&link) else { continue };
            line.finish();
            self.count(why);
            let event = LinkEvent::Down { link, peer: line.peer.clone(), why };
            (self.handler)(event, &mut self.outbox);
        }
    }

    fn count(&self, why: Lost) {
        match why {
            Lost::Silent | Lost::Stalled => self.counts().count(StreamCount::Silent),
            Lost::Overflow => self.counts().count(StreamCount::Overflowed),
            Lost::Frame(_) | Lost::NotAMessage(_) => self.counts().count(StreamCount::Garbled),
            _ => {}
        }
    }
}

/// One link, between the handler that fills its buffer and the task that empties it.
#[derive(Debug)]
pub(super) struct Line {
    peer: Name,
    queue: RefCell<Vec<u8>>,
    /// Bytes that were taken from the queue and not yet accepted by the socket.
    leaving_bytes: Cell<usize>,
    is_over: Cell<bool>,
    /// Notified when the queue becomes non-empty.
    filled: Notify,
    /// Notified when the link ends.
    finished: Notify,
}

impl Line {
    fn new(peer: Name) -> Self {
        Self {
            peer,
            queue: RefCell::default(),
            leaving_bytes: Cell::new(0),
            is_over: Cell::new(false),
            filled: Notify::new(),
            finished: Notify::new(),
        }
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        self.queue.borrow_mut().extend_from_slice(bytes);
        self.filled.notify_one();
    }

    /// Bytes that the socket has not accepted yet.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.borrow().len() + self.leaving_bytes.get()
    }

    /// Waits for bytes to send and moves them to `leaving`, whose memory is reused for later ones.
    pub(super) async fn take(&self, leaving: &mut Vec<u8>) {
        leaving.clear();
        leaving.shrink_to(LINK_BUFFER_BYTES_KEPT_MAX);
        while self.queue.borrow().is_empty() {
            self.filled.notified().await;
        }
        std::mem::swap(&mut *self.queue.borrow_mut(), leaving);
        self.leaving_bytes.set(leaving.len());
    }

    /// Records that the socket has accepted this many more bytes.
    pub(super) fn wrote(&self, bytes: usize) {
        self.leaving_bytes.set(self.leaving_bytes.get() - bytes);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    pub(super) async fn until_over(&self) {
        while !self.is_over() {
            self.finished.notified().await;
        }
    }

    fn finish(&self) {
        self.is_over.set(true);
        self.finished.notify_one();
    }
}
