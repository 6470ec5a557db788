//! A handler that executes the steps in the target of the request: `/read:5/reply:3` reads at least
//! five bytes of the body, and replies with three.

use std::sync::{Arc, Mutex};

use skep_http::RequestHead;
use skep_serve::ConnError;
use std::os::fd::{AsFd, OwnedFd};
use tokio::sync::Semaphore;

use crate::{
    ConnectionSoFar, Departed, Departure, Destination, Exchange, ExchangeError, Handler, Quick,
    Reply, ReplySink,
};

/// One request, as received by the handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    /// The part of its body that was read.
    pub(super) body: Vec<u8>,
    /// The bytes received by a tunnel.
    pub(super) behind: Vec<u8>,
    /// The current step; empty after the last.
    pub(super) step: String,
}

/// The state that handler and test share.
pub(super) struct Shared {
    seen: Mutex<Vec<Seen>>,
    /// Connections that have moved away, each with the bytes read from it.
    pub(super) left: Mutex<Vec<(OwnedFd, Vec<u8>)>>,
    /// The node to which idle connections should move.
    pub(super) idle_to: Mutex<Option<Destination>>,
    /// Handlers in a `wait` step wait for a permit.
    pub(super) gate: Semaphore,
}

impl Default for Shared {
    fn default() -> Self {
        let (seen, left, idle_to) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { seen, left, idle_to, gate: Semaphore::new(0) }
    }
}

impl Shared {
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    /// Records a request; returns its index.
    fn see(&self, request: &RequestHead<'_, '_>) -> usize {
        let (method, target) = (request.method.as_str().to_owned(), request.target.to_owned());
        let mut seen = self.seen.lock().unwrap();
        seen.push(Seen { method, target, ..Seen::default() });
        seen.len() - 1
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap()[number]);
    }
}

/// The handler.
pub(super) struct Scripted {
    pub(super) shared: Arc<Shared>,
    pub(super) answers_quickly: bool,
}

/// The body of a reply with this length.
pub(super) fn reply_body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| b'a' + (at % 26) as u8).collect()
}

fn steps(target: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    target.trim_start_matches('/').split('/').map(|step| match step.split_once(':') {
        Some((name, number)) => (name, Some(number.parse().unwrap())),
        None => (step, None),
    })
}

fn whole(reply: &mut Reply<'_>, target: &str, bytes: usize) {
    reply.start(200);
    reply.field("Script", target.as_bytes());
    reply.field_number("Content-Length", bytes as u64);
    reply.end_head();
    reply.body_copy(&reply_body(bytes));
}

impl Handler for Scripted {
    /// Requests for `/elsewhere:N` move to the node with that number, which accepts if it is even.
    fn destination(
        &self,
        request: &RequestHead<'_, '_>,
        connection: &ConnectionSoFar<'_>,
    ) -> Option<Destination> {
        let (step, number) = steps(request.target).next()?;
        let is_to_go = step == "elsewhere" && connection.moves == 0;
        is_to_go.then(|| Destination(number.unwrap_or(0) as u32))
    }

    fn idle_destination(&self, _: &ConnectionSoFar<'_>) -> Option<Destination> {
        *self.shared.idle_to.lock().unwrap()
    }

    async fn depart(&self, departure: Departure<'_, '_, '_>) -> Departed {
        self.shared.gate.acquire().await.unwrap().forget();
        if departure.to.0 % 2 == 1 {
            return Departed::Kept;
        }
        let socket = departure.conn.as_fd().try_clone_to_owned().unwrap();
        self.shared.left.lock().unwrap().push((socket, departure.received.to_vec()));
        Departed::Gone
    }

    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick {
        let step = steps(request.target).next().unwrap();
        match step {
            ("quick", bytes) => {
                self.shared.see(request);
                whole(reply, request.target, bytes.unwrap_or(0));
                Quick::Done
            }
            ("says-nothing", _) => Quick::Done,
            ("says-half", _) => {
                reply.start(200);
                Quick::Done
            }
            ("says-later", _) => {
                reply.start(200);
                Quick::Later
            }
            _ => Quick::Later,
        }
    }

    fn answers_quickly(&self) -> bool {
        self.answers_quickly
    }

    async fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let number = self.shared.see(request);
        for step in steps(request.target) {
            self.shared.change(number, |seen| seen.step = step.0.to_owned());
            self.step(number, request.target, step, exchange).await?;
        }
        self.shared.change(number, |seen| seen.step.clear());
        Ok(())
    }
}

impl Scripted {
    async fn step(
        &self,
        number: usize,
        target: &str,
        (name, bytes): (&str, Option<usize>),
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        match name {
            "read" => return self.read(number, bytes.unwrap_or(usize::MAX), exchange).await,
            "tunnel" => return self.tunnel(number, exchange).await,
            "wait" => self.shared.gate.acquire().await.unwrap().forget(),
            // Every deadline in force expires.
            "late" => exchange.context().worker().deadlines().sweep(u64::MAX - 1),
            "fail" => return Err(ExchangeError::ReplyCutShort("it is in the script")),
            "pause" => exchange.body.pause(),
            "take" => drop(exchange.body.take_rest()),
            "panic" => panic!("it is in the script"),
            "flush" => exchange.reply.flush().await?,
            _ => say(&mut exchange.reply, target, name, bytes.unwrap_or(0)),
        }
        Ok(())
    }

    /// Reads at least `bytes` bytes more of the body, or to its end.
    async fn read(
        &self,
        number: usize,
        bytes: usize,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let mut read = 0;
        while read < bytes {
            let mut sink = Vec::new();
            let is_more = exchange.body.read(&mut sink).await?;
            assert_eq!(is_more, !sink.is_empty(), "there is more, or the body is done");
            if !is_more {
                assert!(exchange.body.is_done());
                break;
            }
            read += sink.len();
            self.shared.change(number, |seen| seen.body.extend(sink));
        }
        Ok(())
    }

    /// Switches protocols and reads to the end of the stream.
    async fn tunnel(
        &self,
        number: usize,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        let mut reply = exchange.reply.write();
        reply.start(101);
        reply.lines(b"Connection: upgrade\r\nUpgrade: script\r\n");
        reply.end_head();
        reply.close();
        exchange.reply.flush().await?;
        let early = exchange.body.take_rest();
        self.shared.change(number, |seen| seen.behind.extend(early));
        loop {
            let mut buffer = [0; 1024];
            match exchange.conn().recv(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(n) => self.shared.change(number, |seen| seen.behind.extend(&buffer[..n])),
                Err(ConnError::Expired(_)) => unreachable!("a tunnel has no deadline of ours"),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The steps that write.
fn say(sink: &mut ReplySink<'_>, target: &str, name: &str, bytes: usize) {
    if name == "until-close" {
        sink.end_by_close();
    }
    let mut reply = sink.write();
    match name {
        "quick" | "reply" => whole(&mut reply, target, bytes),
        // A head that promises a body of this length, without the body.
        "head" => {
            reply.start(200);
            reply.field("Script", target.as_bytes());
            reply.field_number("Content-Length", bytes as u64);
            reply.end_head();
        }
        "body" => reply.body_copy(&reply_body(bytes)),
        "until-close" => {
            reply.start(200);
            reply.field("Script", target.as_bytes());
            reply.end_head();
            reply.body_copy(&reply_body(bytes));
        }
        "half-head" => reply.start(200),
        "empty" => {
            reply.start(204);
            reply.field("Script", target.as_bytes());
            reply.end_head();
        }
        "close" => reply.close(),
        "nothing" | "elsewhere" => {}
        other => unreachable!("{other} is no step"),
    }
}
