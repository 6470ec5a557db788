//! Sites whose bytes come from HTTP origins.
//!
//! ```text
//!  path?query -> OriginHeadCache: current? --yes--> Resource, served like a file
//!                  | unknown or stale: one SingleFlight for all who ask
//!                  v
//!                head: GET with the range of segment 0, on condition of what is kept
//!                  |-- 304 ----------> the same version, renewed
//!                  |-- may be kept --> Resource; its body fills segment 0
//!                  '-- may not ------> passed to the one who asked; the others ask
//!
//!  Where nodes cooperate, the coordinator is asked for the head first, as for a
//!  segment: one node gets it from the origin, the others get it from that node.
//!
//!  other segments: ranges pinned to the version, each through the cluster's fill
//! ```
//!
//! Requests to origins say nothing of the client: no cookies, credentials or
//! preferences. So what an origin answers, whatever it says to vary by, it would
//! answer any client of ours, and path and query are the whole key.
//!
//! Invariants: bytes under a name are of one version, or a segment fails and its
//! resource is asked for anew; whoever waits for a flight gets its outcome or leads the
//! next one; nothing that an origin wants to have kept from others is kept.

mod client;
mod fetch;
mod head_cache;
mod kept;
mod pass;
mod peer_head;
mod segment;

use std::sync::Arc;

use skep_config::Site as SiteConfig;
use skep_origin::{OriginLimits, OriginUrl, OriginUrlError};

pub(crate) use client::{Passed, Remotes, Tally};
pub(crate) use head_cache::{HeadOutcome, OriginHeadCache};
pub(crate) use kept::{Freshness, Remote};
pub(crate) use pass::pass;
pub(crate) use peer_head::PeerHead;
pub(crate) use segment::RemoteSegment;

use crate::fills::Fills;

/// Where the bytes of a site come from.
#[derive(Debug)]
pub(crate) struct RemoteSite {
    urls: Vec<OriginUrl>,
    /// Field Host; `None`: the origin's own name.
    host: Option<String>,
    limits: OriginLimits,
    fresh_ms: u64,
    /// What its origins are filling.
    pub(crate) fills: Arc<Fills>,
    /// Stands for the site in names: the same on all nodes of a config.
    key: Vec<u8>,
    /// Whether the site says itself how clients may keep it.
    pub(crate) sets_cache_control: bool,
}

impl RemoteSite {
    /// That of a config; `None`: it has a folder. It `is_alone` if no other site has origins.
    pub(crate) fn new(config: &SiteConfig, is_alone: bool) -> Result<Option<Self>, OriginUrlError> {
        if config.origins.is_empty() {
            return Ok(None);
        }
        let urls = config.origins.iter().map(|text| OriginUrl::parse(text));
        let whole_name = config.hosts.first().filter(|host| !host.starts_with('*'));
        let fetch = &config.fetch;
        let host = fetch.host.as_ref().or(whole_name).cloned();
        let key = format!("origins {} as {host:?}", config.origins.join(" "));
        Ok(Some(Self {
            urls: urls.collect::<Result<_, _>>()?,
            host,
            limits: OriginLimits {
                connections_max: fetch.connections_max as usize,
                connect_timeout_ms: fetch.connect_timeout_ms,
                first_byte_timeout_ms: fetch.response_timeout_ms,
                progress_timeout_ms: fetch.stall_timeout_ms,
                ..OriginLimits::default()
            },
            fresh_ms: fetch.fresh_ms,
            fills: Fills::new(is_alone),
            key: key.into_bytes(),
            sets_cache_control: config.cache_control.is_some(),
        }))
    }

    /// Stands for the site in names.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

/// What tests of this module begin with.
#[cfg(test)]
mod rig {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use skep_config::Site as SiteConfig;
    use skep_origin::Head;
    use skep_serve::unix_ms;

    use super::kept::{self, Freshness, Got};
    use crate::purges::Purges;
    use crate::resource::Resource;
    use crate::site::{Site, SiteSet};

    /// A node with a site of an origin.
    pub(super) fn node() -> Arc<Site> {
        let origins = vec!["http://127.0.0.1:1".to_owned()];
        let config = SiteConfig { origins, ..SiteConfig::default() };
        let set = SiteSet::new(&[config], &Arc::<Purges>::default()).unwrap();
        Arc::clone(set.iter().next().unwrap())
    }

    /// What came just now from `/a`, of so many bytes and with these fields.
    pub(super) fn resource(site: &Arc<Site>, bytes: u64, fields: &str) -> Arc<Resource> {
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n{fields}\r\n");
        let head = Head::from_text(text.as_bytes(), unix_ms()).unwrap();
        let remote = site.remote.as_ref().unwrap();
        let (purges, freshness) = (site.purges.load(), Freshness::of(&head, remote));
        let purged = kept::purged(site, &purges.known, b"/a", &head);
        let got = Got { target: b"/a".into(), version: b"v".into(), bytes, head, purged };
        kept::resource(site, remote, got, freshness, &purges)
    }
}
