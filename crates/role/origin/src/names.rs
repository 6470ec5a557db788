//! Addresses of an origin: resolved on another thread, and cached.
//!
//! Invariants: each worker runs at most one look-up of a name at a time. Once addresses were found,
//! no request waits for a look-up, and an unreachable name server does not make a reachable origin
//! unavailable.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::Fault;
use crate::limits::ADDRESSES_MAX;
use crate::url::OriginUrl;

/// Resolves a host and port to addresses; may block.
pub type Lookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The system's resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
}

/// The addresses found, or why there are none.
type Found = Result<Vec<SocketAddr>, String>;

/// The addresses of one origin.
pub(crate) struct Addresses {
    lookup: Lookup,
    known: RefCell<Known>,
    running: RefCell<Option<watch::Receiver<Option<Found>>>>,
}

#[derive(Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    fresh_until_ms: u64,
}

impl Addresses {
    /// The addresses of `url`: a literal address needs no look-up.
    pub(crate) fn new(url: &OriginUrl, lookup: Lookup) -> Self {
        let addresses = url.literal().into_iter().collect();
        let known = RefCell::new(Known { addresses, fresh_until_ms: u64::MAX });
        Self { lookup, known, running: RefCell::default() }
    }

    /// At least one address; the first is to be tried first. Waits at most `timeout_ms`, and only
    /// if no address was ever found.
    pub(crate) async fn get(
        &self,
        url: &OriginUrl,
        now_ms: u64,
        fresh_ms: u64,
        timeout_ms: u64,
    ) -> Result<Vec<SocketAddr>, Fault> {
        if let Some(found) = self.finished() {
            self.learn(found, now_ms.saturating_add(fresh_ms)).ok();
        }
        let (known, fresh_until_ms) = {
            let known = self.known.borrow();
            (known.addresses.clone(), known.fresh_until_ms)
        };
        if !known.is_empty() && now_ms < fresh_until_ms {
            return Ok(known);
        }
        let mut running = self.start(url);
        if !known.is_empty() {
            return Ok(known);
        }
        let limit = Duration::from_millis(timeout_ms);
        let found = match tokio::time::timeout(limit, running.wait_for(Option::is_some)).await {
            Err(_) => return Err(Fault::Name("no answer in time".to_owned())),
            Ok(found) => found.ok().and_then(|found| found.clone()),
        };
        self.learn(found.unwrap_or_else(ended), now_ms.saturating_add(fresh_ms))
    }

    /// Requests a new look-up by the next caller, since no address could be connected to.
    pub(crate) fn doubt(&self, url: &OriginUrl) {
        if url.literal().is_none() {
            self.known.borrow_mut().fresh_until_ms = 0;
        }
    }

    /// The result of the last look-up; returned once.
    fn finished(&self) -> Option<Found> {
        let mut running = self.running.borrow_mut();
        let receiver = running.as_ref()?;
        let found = receiver.borrow().clone();
        if found.is_none() && receiver.has_changed().is_ok() {
            return None;
        }
        *running = None;
        Some(found.unwrap_or_else(ended))
    }

    /// Stores a result; old addresses are kept after a failed look-up.
    fn learn(&self, found: Found, fresh_until_ms: u64) -> Result<Vec<SocketAddr>, Fault> {
        let mut known = self.known.borrow_mut();
        match found {
            Ok(mut addresses) if !addresses.is_empty() => {
                addresses.truncate(ADDRESSES_MAX);
                *known = Known { addresses, fresh_until_ms };
            }
            Ok(_) if known.addresses.is_empty() => {
                return Err(Fault::Name("the answer is empty".to_owned()));
            }
            Err(error) if known.addresses.is_empty() => return Err(Fault::Name(error)),
            Ok(_) | Err(_) => known.fresh_until_ms = fresh_until_ms,
        }
        Ok(known.addresses.clone())
    }

    /// The look-up in progress; starts one if there is none. It runs on its own thread: a resolver
    /// may block for many seconds, and must not occupy the worker's few disk threads.
    fn start(&self, url: &OriginUrl) -> watch::Receiver<Option<Found>> {
        let mut running = self.running.borrow_mut();
        if let Some(receiver) = &*running {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(None);
        let (host, port, lookup) = (url.host().to_owned(), url.port(), Arc::clone(&self.lookup));
        let job = move || {
            let found = lookup(&host, port).map_err(|error| error.to_string());
            sender.send_replace(Some(found));
        };
        // Without a thread the sender is dropped, which the receiver detects.
        if let Err(error) = std::thread::Builder::new().name("skep-name".to_owned()).spawn(job) {
            tracing::warn!(%error, "no thread to look an origin's name up");
        }
        *running = Some(receiver.clone());
        receiver
    }
}

fn ended() -> Found {
    Err("the look-up could not run".to_owned())
}
