//! Admission of a request to a member: at once, or after a wait in the group's queue.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use skep_engine::ExchangeError;
use tokio::time::timeout_at;

use super::ProxiedRequest;
use super::fault::left;
use super::in_flight::InFlight;
use crate::members::settings::QueueSettings;

impl ProxiedRequest<'_, '_, '_, '_, '_> {
    /// Returns a member that was not tried yet; waits while all such members are full or not yet
    /// checked. `None`: there is none, or the wait has timed out.
    ///
    /// # Errors
    /// The client disconnected while it waited.
    pub(super) async fn admit(&mut self) -> Result<Option<InFlight>, ExchangeError> {
        let queue = &self.group.group().queue;
        if queue.may_overtake()
            && let Some(in_flight) = self.try_admit()
        {
            let is_first = self.tried.is_empty();
            let began = if is_first { self.began } else { self.note_wait() };
            return Ok(Some(self.listed(in_flight.since(began))));
        }
        if self.session.is_bound() && !self.recipient.may_wait_for_session() {
            self.would_wait = true;
            return Ok(None);
        }
        let in_flight = self.wait_in_queue().await?;
        if in_flight.is_none() {
            queue.refuse();
        }
        let began = self.note_wait();
        Ok(in_flight.map(|in_flight| self.listed(in_flight.since(began))))
    }

    /// Records how long the request has waited so far.
    fn note_wait(&mut self) -> Instant {
        let now = Instant::now();
        let queue_us = now.duration_since(self.began).as_micros() as u64;
        self.recipient.note(|summary| summary.queue_us = queue_us);
        now
    }

    /// Makes the request visible to operators.
    fn listed(&self, in_flight: InFlight) -> InFlight {
        let request = (self.request.method.as_str(), self.request.path);
        in_flight.list(self.recipient.ends().client.ip(), request)
    }

    fn try_admit(&self) -> Option<InFlight> {
        let client = self.recipient.ends().client;
        // Another worker may take the last slot between the selection and its use; the member is
        // then full.
        loop {
            let target = self.group.pick(self.request, client, &self.session, &self.tried)?;
            if let Some(in_flight) = InFlight::begin(self.group, target, self.began) {
                return Some(in_flight);
            }
        }
    }

    /// Whether some members with room may not suit the request.
    fn is_bound(&self) -> bool {
        !self.tried.is_empty() || self.session.is_bound()
    }

    async fn wait_in_queue(&self) -> Result<Option<InFlight>, ExchangeError> {
        let in_force = Rc::clone(self.group.balancer().sync());
        let QueueSettings { requests_max, timeout_ms } = in_force.settings.queue;
        let gives_up = in_force.settings.gives_up;
        let may_wait = || self.group.balancer().may_wait(&self.session, &self.tried);
        if !may_wait() {
            return Ok(None);
        }
        let queue = &self.group.group().queue;
        let Some(place) = queue.enter(requests_max, self.is_bound()) else {
            // Requests that wait for members of their own do not keep others out.
            let may_overtake = !self.is_bound() && queue.are_all_bound();
            return Ok(may_overtake.then(|| self.try_admit()).flatten());
        };
        let recipient = &*self.recipient;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            let turn = poll_fn(|cx| match (place.poll_turn(cx), gives_up) {
                (Poll::Pending, true) => recipient.poll_left(cx).map(|()| Err(left())),
                (turn, _) => turn.map(Ok),
            });
            match timeout_at(deadline, turn).await {
                Ok(turn) => turn?,
                Err(_) => return Ok(None),
            }
            if let Some(in_flight) = self.try_admit() {
                return Ok(Some(in_flight));
            }
            if !may_wait() {
                return Ok(None);
            }
            if self.is_bound() {
                place.pass_on();
            }
        }
    }
}
