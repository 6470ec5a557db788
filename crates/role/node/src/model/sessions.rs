//! Counts the recently seen sessions of a pool, by networks of their clients.
//!
//! ```text
//!  request --Sticky::session_id--> id --keyed hash--> Observation --+
//!  claims, or peer --> client --ClientNetworks::of--> network ------+--> SessionWindow: one word
//! ```
//!
//! Invariants: ids are hashed with a key at once and never stored. Counting takes no lock and allocates
//! nothing except for the first session of a network. The words are shared by all workers and written only
//! when they change: in steady state each request reads one word, and sessions seen before in the same time
//! slot write none.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher13;
use skep_config::limits::CLIENT_NETWORK_OTHER;
use skep_config::{ClientNetworkConfig, PoolConfig, StickyBy};
use skep_http::RequestHead;
use skep_proxy::Sticky;
use skep_sketch::limits::REGISTERS;
use skep_sketch::{Observation, Sketch, WindowRegister};
use skep_units::{Now, Rng, Subnet};
use skep_wire::seal::Key;

/// The key of the hash of ids: without it nobody can recover an id from the nodes' messages, or choose ids
/// that count as many sessions.
#[derive(Clone, Copy)]
pub(crate) struct SessionKey([u8; 16]);

/// The named client networks.
#[derive(Debug)]
pub struct ClientNetworks {
    /// In the order of the config; the name for all other clients is last.
    names: Vec<Arc<str>>,
    /// Smallest first, each with the index of its name.
    subnets: Vec<(Subnet, usize)>,
}

/// The sessions of a pool.
pub(crate) struct SessionCounts {
    /// How the session id is read from a request.
    told_by: Sticky,
    key: SessionKey,
    networks: Arc<ClientNetworks>,
    /// One per network, in their order.
    windows: Vec<Arc<SessionWindow>>,
}

/// Sessions by networks of their clients.
pub type SessionsByNetwork = Vec<(String, Sketch)>;

/// The recently seen sessions of a pool and network. Allocates 16 KiB at the first session.
#[derive(Default)]
struct SessionWindow {
    registers: OnceLock<Box<[AtomicU64]>>,
}

impl SessionKey {
    /// Equal on all nodes with the cluster's key, so that a session seen by two nodes counts once; without
    /// that key, specific to this process.
    pub(crate) fn new(key: Option<&Key>, seed: u64) -> Self {
        let own = || {
            let mut rng = Rng::new(seed);
            (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes()
        };
        Self(key.map_or_else(own, Key::for_session_counts))
    }

    fn hash(&self, id: &[u8]) -> u64 {
        SipHasher13::new_with_key(&self.0).hash(id)
    }
}

impl ClientNetworks {
    /// The networks of a config.
    pub fn new(networks: &[ClientNetworkConfig]) -> Self {
        let names = networks.iter().map(|it| it.name.as_str()).chain([CLIENT_NETWORK_OTHER]);
        let of_name = |(name, network): (usize, &ClientNetworkConfig)| {
            let subnets: Vec<Subnet> =
                network.networks.iter().filter_map(|text| text.parse().ok()).collect();
            subnets.into_iter().map(move |subnet| (subnet, name))
        };
        let mut subnets: Vec<_> = networks.iter().enumerate().flat_map(of_name).collect();
        subnets.sort_by_key(|(subnet, _)| std::cmp::Reverse(subnet.bits()));
        Self { names: names.map(Arc::from).collect(), subnets }
    }

    /// The name of the smallest network that contains `client`.
    pub fn name_of(&self, client: IpAddr) -> &str {
        &self.names[self.of(client)]
    }

    /// The index of the name of the smallest network that contains `client`.
    fn of(&self, client: IpAddr) -> usize {
        let found = self.subnets.iter().find(|(subnet, _)| subnet.contains(client));
        found.map_or(self.names.len() - 1, |(_, name)| *name)
    }
}

impl SessionCounts {
    /// The sessions of `pool`, whose requests are assigned to servers by `sticky`; the counts of `before` are
    /// kept for networks with the same names. `None`: the pool cannot distinguish sessions.
    pub(crate) fn new(
        pool: &PoolConfig,
        sticky: Option<&Sticky>,
        (key, networks): (SessionKey, &Arc<ClientNetworks>),
        before: Option<&Self>,
    ) -> Option<Self> {
        let told_by = match (&pool.sticky.counted_cookie, pool.sticky.by) {
            (Some(cookie), _) => Sticky::CookieHash(cookie.clone()),
            // The inserted cookie identifies the server of a session and is equal for all sessions of that
            // server.
            (None, StickyBy::Off | StickyBy::Cookie) => return None,
            (None, _) => sticky?.clone(),
        };
        let before = before.filter(|before| before.told_by == told_by);
        let window = |name: &Arc<str>| before.and_then(|it| it.window(name)).unwrap_or_default();
        let windows = networks.names.iter().map(window).collect();
        Some(Self { told_by, key, networks: Arc::clone(networks), windows })
    }

    /// Counts the session of `request`, if it has one.
    pub(crate) fn count(
        &self,
        request: &RequestHead<'_, '_>,
        client: impl FnOnce() -> IpAddr,
        now: Now,
    ) {
        if let Some(id) = self.told_by.session_id(request) {
            let window = &self.windows[self.networks.of(client())];
            window.record(Observation::of(self.key.hash(id)), now);
        }
    }

    /// The recently seen sessions, by network, in the order of the config.
    pub(crate) fn seen(&self, now: Now) -> SessionsByNetwork {
        let names = self.networks.names.iter().map(|name| (**name).to_owned());
        names.zip(self.windows.iter().map(|window| window.read(now))).collect()
    }

    fn window(&self, name: &str) -> Option<Arc<SessionWindow>> {
        let at = self.networks.names.iter().position(|it| **it == *name)?;
        Some(Arc::clone(&self.windows[at]))
    }
}

impl fmt::Debug for SessionCounts {
    /// Omits the key and the counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sessions by {:?} of {:?}", self.told_by, self.networks.names)
    }
}

impl SessionWindow {
    fn record(&self, seen: Observation, now: Now) {
        let none = || (0..REGISTERS).map(|_| AtomicU64::new(0)).collect();
        let register = &self.registers.get_or_init(none)[seen.register];
        // Words are independent of each other: relaxed ordering suffices.
        let raise = |word| {
            let raised = WindowRegister(word).raised(now, seen).0;
            (raised != word).then_some(raised)
        };
        let _ = register.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
    }

    fn read(&self, now: Now) -> Sketch {
        let words = self.registers.get().into_iter().flat_map(|it| it.iter());
        let rank = |word: &AtomicU64| WindowRegister(word.load(Ordering::Relaxed)).highest(now);
        Sketch::of_ranks(words.map(rank))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_config::Config;
    use skep_http::{FieldSlots, HeadLimits, parse_request};
    use skep_sketch::limits::{SLOT_MS, WINDOW_MS};

    use super::*;

    fn networks(tables: &str) -> Arc<ClientNetworks> {
        let text = format!(
            "[[node]]\nname = 'n'\naddress = '127.0.0.1:1'\n[[site]]\nroot = '/'\n{tables}"
        );
        Arc::new(ClientNetworks::new(&Config::parse("test", &text).unwrap().client_networks))
    }

    fn counts(networks: &Arc<ClientNetworks>, before: Option<&SessionCounts>) -> SessionCounts {
        let mut pool = PoolConfig::default();
        pool.sticky.counted_cookie = Some("sid".to_owned());
        SessionCounts::new(&pool, None, (SessionKey::new(None, 7), networks), before).unwrap()
    }

    fn count(counts: &SessionCounts, id: u32, client: &str, now_ms: u64) {
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\nCookie: sid={id}\r\n\r\n");
        let mut slots = FieldSlots::new();
        let request = parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
        counts.count(&request, || client.parse().unwrap(), Now(now_ms));
    }

    fn shown(counts: &SessionCounts, now_ms: u64) -> Vec<(String, u64)> {
        let seen = counts.seen(Now(now_ms)).into_iter();
        seen.map(|(name, sketch)| (name, sketch.estimate())).collect()
    }

    const CAMPUS: &str = "[[client_network]]\nname = 'campus'\nnetworks = ['10.0.0.0/8', '::/1']\n";
    const LIBRARY: &str = "[[client_network]]\nname = 'library'\nnetworks = ['10.1.0.0/16']\n";

    #[test]
    fn a_client_is_in_the_smallest_network_that_has_it() {
        for tables in [format!("{CAMPUS}{LIBRARY}"), format!("{LIBRARY}{CAMPUS}")] {
            let networks = networks(&tables);
            for (client, wanted) in [
                ("10.1.2.3", "library"),
                ("::ffff:10.1.2.3", "library"),
                ("10.2.2.3", "campus"),
                ("2001:db8::1", "campus"),
                ("192.0.2.1", "other"),
                ("fe80::1", "other"),
            ] {
                assert_eq!(&*networks.names[networks.of(client.parse().unwrap())], wanted);
            }
        }
    }

    #[test]
    fn a_session_is_counted_once_for_half_an_hour_and_a_reload_keeps_it() {
        let before = counts(&networks(CAMPUS), None);
        for id in [1, 2, 1, 2, 1] {
            count(&before, id, "10.1.0.1", 0);
        }
        count(&before, 3, "192.0.2.1", SLOT_MS);
        let named =
            |counts: [(&str, u64); 2]| counts.map(|(name, n)| (name.to_owned(), n)).to_vec();
        assert_eq!(shown(&before, SLOT_MS), named([("campus", 2), ("other", 1)]));
        assert_eq!(shown(&before, WINDOW_MS), named([("campus", 2), ("other", 1)]));
        assert_eq!(shown(&before, WINDOW_MS + SLOT_MS), named([("campus", 0), ("other", 1)]));
        let after = counts(&networks(LIBRARY), Some(&before));
        count(&after, 4, "10.1.0.1", SLOT_MS);
        // Requests in progress still use the old windows.
        count(&before, 5, "192.0.2.1", SLOT_MS);
        assert_eq!(shown(&after, SLOT_MS), named([("library", 1), ("other", 2)]));
    }

    #[test]
    fn workers_that_count_at_once_lose_nothing() {
        let counts = counts(&networks(""), None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|id| count(&counts, id, "10.0.0.1", 0)));
            }
        });
        let alone = self::counts(&networks(""), None);
        (0..500).for_each(|id| count(&alone, id, "10.0.0.1", 0));
        assert_eq!(counts.seen(Now(0))[0].1, alone.seen(Now(0))[0].1);
        assert!((465..535).contains(&shown(&counts, 0)[0].1));
    }
}
