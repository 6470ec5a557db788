//! Accounting of one attempt: load while it lasts, totals at its end.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use skep_comparison::{ArmEvent, ArmSample};
use skep_http::ResponseHead;
use skep_policy::AttemptEnd;
use skep_upstream::ConnectionPool;

use crate::limits::OWED_BYTES_MAX;
use crate::members::cause::Cause;
use crate::request::requests_in_flight::TableEntry;
use crate::worker_balancer::PickedMember;
use crate::worker_group::WorkerGroup;

/// An attempt at a member. Counted as load until it is dropped.
pub(super) struct InFlight {
    group: Rc<WorkerGroup>,
    target: PickedMember,
    began: Instant,
    /// Bytes of the announced body that have not arrived yet.
    owed: u64,
    /// Bytes of the body that have arrived.
    received: u64,
    is_tunnel: bool,
    /// Whether the result was reported to the policy.
    is_judged: bool,
    outcome: Outcome,
    /// The response, once its head has arrived.
    answered: Option<Answered>,
    /// The entry for operators.
    entry: Option<TableEntry>,
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
struct Answered {
    at: Instant,
    status: u16,
    is_hit: Option<bool>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// It ended through no fault of the member.
    Abandoned,
    Complete,
    Failed(Cause),
}

impl InFlight {
    /// Begins an attempt, unless the member is full.
    pub(super) fn begin(
        group: &Rc<WorkerGroup>,
        target: PickedMember,
        began: Instant,
    ) -> Option<Self> {
        if !target.member().try_begin() {
            group.finished(&target, AttemptEnd::Inconclusive);
            return None;
        }
        let outcome = Outcome::Abandoned;
        let group = Rc::clone(group);
        let (owed, received, entry) = (0, 0, None);
        let (is_tunnel, is_judged, answered) = (false, false, None);
        Some(Self {
            group,
            target,
            began,
            owed,
            received,
            is_tunnel,
            is_judged,
            outcome,
            answered,
            entry,
        })
    }

    /// Makes the method and path of a client's request visible to operators.
    pub(super) fn list(mut self, client: IpAddr, request: (&str, &[u8])) -> Self {
        let at = (self.group.group(), &self.target);
        self.entry = Some(TableEntry::new(at, client, request, self.began));
        self
    }

    /// Restarts the measurement of latency at this moment.
    pub(super) fn since(mut self, began: Instant) -> Self {
        self.began = began;
        self
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn target(&self) -> &PickedMember {
        &self.target
    }

    /// The connections of its worker.
    pub(super) fn connections(&self) -> &ConnectionPool {
        self.group.connections()
    }

    /// Records that the body of the reply has `bytes` more than arrived with its head.
    pub(super) fn owe(&mut self, bytes: u64) {
        let bytes = bytes.min(OWED_BYTES_MAX);
        self.owed += bytes;
        self.target.member().load.bytes.rise(bytes);
    }

    /// Counts received bytes of the body.
    pub(super) fn receive(&mut self, bytes: u64) {
        self.received += bytes;
        let paid = bytes.min(self.owed);
        if paid > 0 {
            self.owed -= paid;
            self.target.member().load.bytes.fall(paid);
        }
    }

    /// Records that the head of the response has arrived. The time to it measures the member's speed, unless
    /// the member waited for the client's body, or the response is an error.
    pub(super) fn head_arrived(&mut self, status: u16, has_body: bool) {
        let latency_us = self.began.elapsed().as_micros() as u64;
        let is_telling = status < 500 && !has_body;
        self.judge(if is_telling {
            AttemptEnd::Answered { latency_us }
        } else {
            AttemptEnd::Inconclusive
        });
    }

    /// In an A/B test: records the head of the response.
    pub(super) fn note_head(&mut self, head: &ResponseHead<'_, '_>) {
        if self.target.arm().is_some() {
            let says_hit = |field: &[u8]| field.windows(5).any(|part| part == b"; hit");
            let is_hit = head.fields.get("cache-status").map(says_hit);
            self.answered = Some(Answered { at: Instant::now(), status: head.status, is_hit });
        }
    }

    /// Counts the completed response for the arm of an A/B test. The request was received at `came`.
    pub(super) fn count_in_arm(&self, came: Instant) {
        let (Some(arm), Some(answered)) = (self.target.arm(), self.answered) else { return };
        if answered.status >= 500 {
            return arm.count(&ArmEvent::Failed);
        }
        arm.count(&ArmEvent::Answered(ArmSample {
            first_byte_us: answered.at.duration_since(came).as_micros() as u64,
            total_us: came.elapsed().as_micros() as u64,
            bytes: self.received,
            is_hit: answered.is_hit,
        }));
    }

    /// Records the size of the requested object, in bytes.
    pub(super) fn object_is(&self, bytes: u64) {
        self.group.learned(&self.target, bytes);
    }

    /// Reports once: later times include the client's speed.
    fn judge(&mut self, end: AttemptEnd) {
        if !std::mem::replace(&mut self.is_judged, true) {
            self.group.finished(&self.target, end);
        }
    }

    /// Records that the reply was read to its end.
    pub(super) fn succeed(&mut self) {
        self.outcome = Outcome::Complete;
    }

    /// Records that the member failed.
    pub(super) fn fail(&mut self, cause: Cause) {
        self.outcome = Outcome::Failed(cause);
    }

    /// Logs a line of an application's standard error: a limited number per second and server.
    pub(super) fn log_stderr(&self, line: &[u8]) {
        let (group, member) = (self.group.group(), self.target.member());
        let words = group.words;
        let (is_logged, lost) = member.may_log_stderr(self.group.now());
        if lost > 0 {
            tracing::warn!(
                "{} {}: {} {}: stderr: {lost} lines more, not logged",
                words.group,
                group.name(),
                words.member,
                member.name
            );
        }
        if is_logged {
            // The bytes are arbitrary; line ends and escape sequences are not logged.
            let line = String::from_utf8_lossy(line);
            tracing::warn!(
                "{} {}: {} {}: stderr: {}",
                words.group,
                group.name(),
                words.member,
                member.name,
                line.escape_debug()
            );
        } else {
            member.totals.gateway.stderr_lines_dropped.fetch_add(1, Relaxed);
        }
    }

    /// Counts request fields, and bytes of standard error, that were dropped.
    pub(super) fn count_dropped(&self, (fields, stderr_bytes): (u64, u64)) {
        let totals = &self.target.member().totals.gateway;
        if fields > 0 {
            totals.fields_dropped.fetch_add(fields, Relaxed);
        }
        if stderr_bytes > 0 {
            totals.stderr_bytes_dropped.fetch_add(stderr_bytes, Relaxed);
        }
    }

    /// Records that the connection was upgraded.
    pub(super) fn become_tunnel(&mut self) {
        let load = &self.target.member().load;
        load.tunnels.fetch_add(1, Relaxed);
        load.requests.fall(1);
        self.is_tunnel = true;
        self.judge(AttemptEnd::Inconclusive);
        if let Some(entry) = &self.entry {
            entry.become_tunnel();
        }
    }

    /// Counts bytes that a tunnel received from the member.
    pub(super) fn tunnelled(&mut self, bytes: u64) {
        self.received += bytes;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let member = self.target.member();
        if self.owed > 0 {
            member.load.bytes.fall(self.owed);
        }
        member.totals.requests.fetch_add(1, Relaxed);
        member.totals.bytes.fetch_add(self.received, Relaxed);
        // The duration of a tunnel does not measure the member's speed.
        if matches!(self.outcome, Outcome::Complete) && !self.is_tunnel {
            member.record_latency_us(self.began.elapsed().as_micros() as u64);
        }
        if self.is_tunnel {
            member.load.tunnels.fetch_sub(1, Relaxed);
        } else {
            member.load.requests.fall(1);
        }
        match self.outcome {
            Outcome::Failed(cause) => {
                member.totals.failures[cause.index()].fetch_add(1, Relaxed);
                self.judge(AttemptEnd::Failed);
            }
            Outcome::Complete | Outcome::Abandoned => self.judge(AttemptEnd::Inconclusive),
        }
        let member = self.target.member();
        // Without a bound no request waits for a slot.
        if member.requests_max() != u32::MAX {
            self.group.group().queue.look();
        }
    }
}
