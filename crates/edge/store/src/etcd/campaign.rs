//! Leadership by lease: one key per cluster, bound to the lease of its writer.
//!
//! A candidate that finds no key writes it; etcd removes it when the lease of its writer expires. The
//! revision of that write is the epoch: etcd's revisions only grow, so every term has a greater epoch. (After
//! a restore from a backup, revisions are lower; etcd's documentation describes how to bump them.)
//!
//! Invariant: a candidate reports `Me` only within a lease that etcd has confirmed, counted from before the
//! request was sent, less a margin. So its term ends before the next one starts, if clocks run at the same
//! rate. A process that was suspended for longer finds its view expired when it reads the view.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::messages::{
    Empty, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest, PutRequest,
};
use super::{Etcd, KeyValue};
use crate::error::StoreError;
use crate::latest::Latest;
use crate::limits::{LEASE_MARGIN_DIVISOR, LEASE_ROUNDS, RESIGN_TIMEOUT_MS, WATCH_RETRY_MS};
use crate::types::{Expected, Held, Leader, LeadershipView};

const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";

/// The key of the leader; its value is the leader's name.
pub(crate) const LEADER: &str = "leader";

/// A candidate for leadership.
pub(crate) struct Candidate {
    name: String,
    /// Requested lifetime of a lease; etcd may grant a longer one.
    ttl: Duration,
    lease: Option<EtcdLease>,
    latest: Latest<Held>,
}

#[derive(Clone, Copy)]
struct EtcdLease {
    id: i64,
    /// When the lease may expire, counted from the request for it.
    ends: Instant,
}

impl Candidate {
    /// Creates a candidate `name` with leases of `ttl`; results are published to `latest`.
    pub(crate) fn new(name: String, ttl: Duration, latest: Latest<Held>) -> Self {
        Self { name, ttl, lease: None, latest }
    }

    /// Campaigns until the other end of `stop` is dropped, then revokes its lease.
    pub(crate) async fn run(mut self, etcd: &Etcd, mut stop: oneshot::Receiver<()>) {
        loop {
            let seen = tokio::select! {
                _ = &mut stop => break,
                seen = self.round(etcd) => seen,
            };
            let until = self.publish(&seen);
            let as_of = seen.as_ref().ok().map(|(_, as_of)| *as_of);
            let news = async {
                match as_of {
                    Some(as_of) => etcd.changed(LEADER, as_of).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut stop => break,
                () = news => {}
                () = sleep_until(until) => {}
            }
        }
        self.resign(etcd).await;
    }

    /// Renews the lease, reads the leader, and becomes the leader if there is none. Returns the view and its
    /// revision.
    async fn round(&mut self, etcd: &Etcd) -> Result<(Held, u64), StoreError> {
        let deadline = self.round_ends();
        let lease = self.renew(etcd, deadline).await?;
        let asked = Instant::now();
        let (mut leader, mut as_of) = etcd.read(LEADER, deadline).await?;
        if leader.is_none() {
            let put = PutRequest {
                key: etcd.key(LEADER),
                value: self.name.clone().into_bytes(),
                lease: lease.id,
            };
            let taken = etcd.put_if(put, Expected::Absent, deadline).await;
            // If the lease no longer exists at etcd, it is refused here.
            if matches!(taken, Err(StoreError::Refused { .. })) {
                self.lease = None;
            }
            match taken?.reply {
                Ok(epoch) => return Ok((self.leading(lease, epoch), epoch)),
                Err(found) => leader = found,
            }
            as_of = leader.as_ref().map_or(as_of, |leader| leader.create_revision as u64);
        }
        Ok((self.judge(leader, lease, asked), as_of))
    }

    /// Interprets the value of the leader's key.
    fn judge(&self, leader: Option<KeyValue>, lease: EtcdLease, asked: Instant) -> Held {
        let good_until = Some(asked + self.ttl);
        let epoch = self.latest.get().view.epoch;
        match leader {
            Some(leader) if leader.lease == lease.id => {
                self.leading(lease, leader.create_revision as u64)
            }
            Some(KeyValue { create_revision, value, .. }) => {
                let leader = Leader::Other(String::from_utf8_lossy(&value).into_owned());
                Held { view: LeadershipView { leader, epoch: create_revision as u64 }, good_until }
            }
            None => Held { view: LeadershipView { leader: Leader::Nobody, epoch }, good_until },
        }
    }

    fn leading(&self, lease: EtcdLease, epoch: u64) -> Held {
        Held { view: LeadershipView { leader: Leader::Me, epoch }, good_until: Some(lease.ends) }
    }

    /// Publishes the result of a round, or that the leader is unknown; returns when the next round
    /// is due.
    fn publish(&mut self, seen: &Result<(Held, u64), StoreError>) -> Instant {
        let now = Instant::now();
        let before = self.latest.get();
        match seen {
            Ok((held, _)) => {
                let is_news = held.view != before.view;
                if is_news {
                    tracing::info!(leader = ?held.view.leader, epoch = held.view.epoch, "leader changed");
                }
                self.latest.publish(held.clone(), is_news);
                now + self.ttl / LEASE_ROUNDS
            }
            Err(error) => {
                let retry = now + Duration::from_millis(WATCH_RETRY_MS);
                match before.good_until {
                    Some(until) if until > now => retry.min(until),
                    _ => {
                        let is_news = before.view.leader != Leader::Unknown;
                        if is_news {
                            tracing::warn!(%error, "the leader is unknown");
                        }
                        self.latest.publish(Held::unknown(before.view.epoch), is_news);
                        retry
                    }
                }
            }
        }
    }

    /// A round ends in time for the next one, and before the view expires.
    fn round_ends(&self) -> Instant {
        let now = Instant::now();
        let ends = now + self.ttl / LEASE_ROUNDS;
        let runs_out = self.latest.get().good_until.filter(|until| *until > now);
        runs_out.map_or(ends, |until| ends.min(until))
    }

    /// Renews the lease, or requests a new one.
    async fn renew(&mut self, etcd: &Etcd, deadline: Instant) -> Result<EtcdLease, StoreError> {
        let asked = Instant::now();
        if let Some(EtcdLease { id, .. }) = self.lease {
            let request = LeaseRequest { id };
            let answer = etcd.call::<_, LeaseKeepAliveResponse>(KEEP_ALIVE, request, deadline);
            let ttl_s = answer.await?.reply.ttl_s;
            self.lease = EtcdLease::new(id, asked, ttl_s);
        }
        if self.lease.is_none() {
            let asked = Instant::now();
            let request = LeaseGrantRequest { ttl_s: self.ttl.as_secs() as i64 };
            let answer = etcd.call::<_, LeaseGrantResponse>(GRANT, request, deadline);
            let LeaseGrantResponse { id, ttl_s } = answer.await?.reply;
            self.lease = EtcdLease::new(id, asked, ttl_s);
        }
        self.lease.ok_or(StoreError::Timeout)
    }

    /// Revokes the lease, so that the next leader need not wait for its expiry.
    async fn resign(self, etcd: &Etcd) {
        let before = self.latest.get();
        self.latest.publish(Held::unknown(before.view.epoch), false);
        let Some(EtcdLease { id, .. }) = self.lease else { return };
        let deadline = Instant::now() + Duration::from_millis(RESIGN_TIMEOUT_MS);
        let revoked = etcd.call::<_, Empty>(REVOKE, LeaseRequest { id }, deadline).await;
        if let Err(error) = revoked {
            tracing::warn!(%error, "cannot revoke the lease; it will expire");
        }
    }
}

impl EtcdLease {
    /// Creates a lease of `ttl_s` seconds, counted from `asked`; `None` if it has expired.
    fn new(id: i64, asked: Instant, ttl_s: i64) -> Option<Self> {
        let ttl = Duration::from_secs(u64::try_from(ttl_s).ok()?);
        let counted = ttl - ttl / LEASE_MARGIN_DIVISOR;
        (ttl_s > 0).then(|| Self { id, ends: asked + counted })
    }
}
