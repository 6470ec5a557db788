//! `store = "etcd"`: API v3 over gRPC, without generated code.
//!
//! A call is sent to the endpoint that answered last, then to the others in turn until its deadline. So a
//! call may be executed more than once; all calls here tolerate this (see `put`).

mod campaign;
mod endpoint;
mod messages;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use prost::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::error::{StoreError, StoreOpenError};
use crate::file::Read;
use crate::limits::{ATTEMPT_TIMEOUT_MS, ENDPOINTS_MAX, ROUND_PAUSE_MS, WATCH_RETRY_MS};
use crate::types::{Expected, Health, StoredValue};
use endpoint::{Endpoint, describe, is_refusal};
use messages::{
    Compare, Empty, KeyValue, PutRequest, RangeRequest, RangeResponse, Request, RequestOp,
    StatusResponse, TARGET_MOD, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};

pub(crate) use campaign::{Candidate, LEADER};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// An etcd cluster of one or more members.
pub(crate) struct Etcd {
    endpoints: Vec<Endpoint>,
    /// The endpoint to try first: the one that answered last, if any did.
    preferred: Cell<usize>,
    /// Why the last call to each endpoint failed, if it did.
    problems: RefCell<Vec<Option<String>>>,
    /// The prefix of every key, so that several clusters may share an etcd.
    prefix: String,
}

/// A reply, and whether it took a retry.
struct EtcdReply<R> {
    reply: R,
    /// Whether an earlier attempt may have been executed as well.
    is_retry: bool,
}

impl Etcd {
    /// Creates a client for the cluster named `cluster`, without sending a request. Must be called within a
    /// runtime.
    pub(crate) fn new(endpoints: &[String], cluster: &str) -> Result<Self, StoreOpenError> {
        let found = endpoints.len();
        if !(1..=ENDPOINTS_MAX).contains(&found) {
            return Err(StoreOpenError::Endpoints { found, max: ENDPOINTS_MAX });
        }
        let endpoints = endpoints.iter().map(|url| Endpoint::new(url));
        Ok(Self {
            endpoints: endpoints.collect::<Result<_, _>>()?,
            preferred: Cell::new(0),
            problems: RefCell::new(vec![None; found]),
            prefix: format!("/skep/{cluster}/"),
        })
    }

    /// Reads the value at `key`; linearizable.
    pub(crate) async fn get(&self, key: &str, deadline: Instant) -> Result<Read, StoreError> {
        let (found, as_of) = self.read(key, deadline).await?;
        Ok(Read { entry: found.map(entry), as_of })
    }

    /// Writes `value` at `key` if the present value is as expected; returns the revision.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
        deadline: Instant,
    ) -> Result<u64, StoreError> {
        let put = PutRequest { key: self.key(key), value: value.to_owned(), lease: 0 };
        let answer = self.put_if(put, expected, deadline).await?;
        match answer.reply {
            Ok(revision) => Ok(revision),
            // The present value was put by an earlier attempt of this call, or it has the same bytes from
            // another writer.
            Err(Some(found)) if answer.is_retry && found.value == value => {
                Ok(found.mod_revision as u64)
            }
            Err(found) => {
                let found = found.map(|found| found.mod_revision as u64);
                Err(StoreError::Conflict { key: key.to_owned(), found })
            }
        }
    }

    /// Returns when `key` may have been written after revision `as_of`.
    pub(crate) async fn changed(&self, key: &str, as_of: u64) {
        if self.wait_for_event(key, as_of).await.is_err() {
            // The read that follows finds another endpoint, or reports that there is none.
            sleep(Duration::from_millis(WATCH_RETRY_MS)).await;
        }
    }

    async fn wait_for_event(&self, key: &str, as_of: u64) -> Result<(), tonic::Status> {
        let start_revision = as_of as i64 + 1;
        let create = WatchCreateRequest { key: self.key(key), start_revision };
        let request = WatchRequest { create: Some(create) };
        let mut events =
            self.endpoints[self.preferred.get()].follow::<_, WatchResponse>(WATCH, request).await?;
        while let Some(event) = events.message().await? {
            if !event.created || event.canceled {
                break;
            }
        }
        Ok(())
    }

    /// Requests the status of every endpoint.
    pub(crate) async fn health(&self, deadline: Instant) -> Health {
        let mut asked = JoinSet::new();
        for (at, endpoint) in self.endpoints.iter().cloned().enumerate() {
            let ask = async move { timeout_at(deadline, endpoint.ask(STATUS, Empty {})).await };
            asked.spawn_local(async move { (at, ask.await) });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(at, _)| *at);
        let mut problems = Vec::new();
        let (mut answering, mut cluster) = (0, None);
        for (at, answer) in answers {
            let problem = match answer {
                Err(_) => Some("no answer".to_owned()),
                Ok(Err(status)) => Some(describe(&status)),
                Ok(Ok(status)) => {
                    answering += 1;
                    judge(&status, &mut cluster)
                }
            };
            let url = &self.endpoints[at].url;
            problems.extend(problem.map(|problem| format!("{url}: {problem}")));
        }
        Health { answering, of: self.endpoints.len(), what: "endpoints", problems }
    }

    /// Returns the value at `key` with its metadata, and the revision of the read.
    async fn read(
        &self,
        key: &str,
        deadline: Instant,
    ) -> Result<(Option<KeyValue>, u64), StoreError> {
        let request = RangeRequest { key: self.key(key) };
        let reply = self.call::<_, RangeResponse>(RANGE, request, deadline).await?.reply;
        let as_of = reply.header.map_or(0, |header| header.revision as u64);
        Ok((reply.kvs.into_iter().next(), as_of))
    }

    /// Puts if the present value is as expected; returns the revision, or else the present value.
    async fn put_if(
        &self,
        put: PutRequest,
        expected: Expected,
        deadline: Instant,
    ) -> Result<EtcdReply<Result<u64, Option<KeyValue>>>, StoreError> {
        let key = put.key.clone();
        let revision = match expected {
            Expected::Any => None,
            Expected::Absent => Some(0),
            Expected::Revision(revision) => Some(revision as i64),
        };
        let compare = |mod_revision| Compare {
            target: TARGET_MOD,
            key: key.clone(),
            mod_revision: Some(mod_revision),
        };
        let request = TxnRequest {
            compare: revision.map(compare).into_iter().collect(),
            success: vec![RequestOp { request: Some(Request::Put(put)) }],
            failure: vec![RequestOp { request: Some(Request::Range(RangeRequest { key })) }],
        };
        let answer = self.call::<_, TxnResponse>(TXN, request, deadline).await?;
        let TxnResponse { header, succeeded, responses } = answer.reply;
        let reply = if succeeded {
            Ok(header.map_or(0, |header| header.revision as u64))
        } else {
            let ranges = responses.into_iter().filter_map(|response| response.range);
            Err(ranges.flat_map(|range| range.kvs).next())
        };
        Ok(EtcdReply { reply, is_retry: answer.is_retry })
    }

    /// Tries one endpoint after the other until one answers or the deadline passes.
    async fn call<Q, R>(
        &self,
        method: &'static str,
        request: Q,
        deadline: Instant,
    ) -> Result<EtcdReply<R>, StoreError>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let mut attempts = 0;
        while Instant::now() < deadline {
            let at = self.preferred.get();
            let attempt = timeout_at(self.attempt_ends(deadline), async {
                self.endpoints[at].ask_led(method, request.clone()).await
            });
            let problem = match attempt.await {
                Ok(Ok(reply)) => {
                    self.problems.borrow_mut()[at] = None;
                    return Ok(EtcdReply { reply, is_retry: attempts > 0 });
                }
                Ok(Err(status)) if is_refusal(&status) => return Err(self.refusal(at, &status)),
                Ok(Err(status)) => describe(&status),
                Err(_) => "no answer".to_owned(),
            };
            self.pass_over(at, problem);
            attempts += 1;
            if attempts % self.endpoints.len() == 0 {
                let pause = Instant::now() + Duration::from_millis(ROUND_PAUSE_MS);
                sleep_until(pause.min(deadline)).await;
            }
        }
        Err(StoreError::Unavailable { problems: self.problems() })
    }

    /// The deadline for one endpoint: a silent one must leave time for all others.
    fn attempt_ends(&self, deadline: Instant) -> Instant {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / self.endpoints.len() as u32;
        now + share.min(Duration::from_millis(ATTEMPT_TIMEOUT_MS))
    }

    fn refusal(&self, at: usize, status: &tonic::Status) -> StoreError {
        let endpoint = self.endpoints[at].url.clone();
        StoreError::Refused { endpoint, reason: status.message().to_owned() }
    }

    /// Switches to the next endpoint, unless another call has done so.
    fn pass_over(&self, at: usize, problem: String) {
        self.problems.borrow_mut()[at] = Some(problem);
        if self.preferred.get() == at {
            self.preferred.set((at + 1) % self.endpoints.len());
        }
    }

    /// The last error of each endpoint.
    fn problems(&self) -> String {
        let problems = self.problems.borrow();
        let told = self.endpoints.iter().zip(problems.iter()).map(|(endpoint, problem)| {
            format!("{}: {}", endpoint.url, problem.as_deref().unwrap_or("not asked again"))
        });
        told.collect::<Vec<_>>().join("; ")
    }

    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.prefix).into_bytes()
    }
}

fn entry(found: KeyValue) -> StoredValue {
    StoredValue { value: found.value, revision: found.mod_revision as u64 }
}

/// Returns what is wrong with a member that answers. The first member determines the `cluster`; members of
/// another etcd would elect a second leader.
fn judge(status: &StatusResponse, cluster: &mut Option<u64>) -> Option<String> {
    let id = status.header.as_ref().map_or(0, |header| header.cluster_id);
    if *cluster.get_or_insert(id) != id {
        return Some("is a member of another etcd than the endpoints before it".to_owned());
    }
    // etcd lists this among its errors as well.
    if status.leader == 0 {
        return Some("has no leader: most members are down".to_owned());
    }
    (!status.errors.is_empty()).then(|| status.errors.join(", "))
}
