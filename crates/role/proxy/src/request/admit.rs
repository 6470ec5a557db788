//! Admission of a request to a member: at once, or after a wait in the group's queue.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use super::Trip;
use super::in_flight::InFlight;
use crate::members::settings::QueueSettings;

impl<'a> Trip<'a, '_, '_, '_> {
    /// A member that was not tried yet; waits while all of those have as many requests as they may
    /// have, or were not checked yet. `None`: there is none, or the wait is over.
    pub(super) async fn admit(&mut self) -> Option<InFlight<'a>> {
        let queue = &self.group.group().queue;
        if queue.waiting() == 0
            && let Some(in_flight) = self.try_admit()
        {
            let is_first = self.tried.is_empty();
            let began = if is_first { self.began } else { self.note_wait() };
            return Some(in_flight.since(began));
        }
        let in_flight = self.wait_in_queue().await;
        if in_flight.is_none() {
            queue.refuse();
        }
        let began = self.note_wait();
        Some(in_flight?.since(began))
    }

    /// Records how long the request has waited until now.
    fn note_wait(&mut self) -> Instant {
        let now = Instant::now();
        let queue_us = now.duration_since(self.began).as_micros() as u64;
        self.exchange.reply.write().summary().queue_us = queue_us;
        now
    }

    fn try_admit(&self) -> Option<InFlight<'a>> {
        let client = self.exchange.conn().peer();
        // Another worker may take the last place between the choice and its use; then it is full.
        loop {
            let target = self.group.pick(self.request, client, &self.tried)?;
            if let Some(in_flight) = InFlight::begin(self.group, target) {
                return Some(in_flight);
            }
        }
    }

    async fn wait_in_queue(&self) -> Option<InFlight<'a>> {
        let QueueSettings { requests_max, timeout_ms } =
            self.group.balancer().sync().settings.queue;
        let may_wait = || self.group.balancer().may_wait(&self.tried);
        if !may_wait() {
            return self.try_admit();
        }
        let place = self.group.group().queue.enter(requests_max)?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            timeout_at(deadline, poll_fn(|cx| place.poll_turn(cx))).await.ok()?;
            if let Some(in_flight) = self.try_admit() {
                return Some(in_flight);
            }
            if !may_wait() {
                return None;
            }
            if !self.tried.is_empty() {
                place.pass_on();
            }
        }
    }
}
