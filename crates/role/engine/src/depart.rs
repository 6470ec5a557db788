//! Connections that move to another node: the handler determines the node and hands them off.

use skep_http::{HeapFieldSlots, RequestHead, parse_request};
use skep_serve::TimeoutCause;

use crate::closing::End;
use crate::connection::Connection;
use crate::handler::{ConnectionSoFar, Departed, Departure, Destination, Handler};
use crate::state::State;

impl<H: Handler> Connection<'_, H> {
    /// The node that should answer `request`, if not this one.
    pub(crate) fn destination(&self, request: &RequestHead<'_, '_>) -> Option<Destination> {
        if self.answers_next {
            return None;
        }
        self.engine.handler.destination(request, &self.so_far())
    }

    /// Handles a connection without a request that another node should have.
    pub(crate) fn evacuate(&mut self) {
        match self.engine.handler.idle_destination(&self.so_far()) {
            Some(to) => {
                drop(self.enter(State::Departing { received: Vec::new(), head_len: 0, to }))
            }
            None => self.go_on_idling(),
        }
    }

    /// Continues the idle time: the node for the connection is queried often.
    fn go_on_idling(&self) {
        let timer = self.conn.timer();
        timer.set(timer.deadline_ms(), TimeoutCause::Idle);
    }

    fn so_far(&self) -> ConnectionSoFar<'_> {
        ConnectionSoFar { conn: self.conn, requests: self.requests, moves: self.moves() }
    }

    fn moves(&self) -> u8 {
        self.provenance.as_ref().map_or(0, |it| it.moves)
    }

    /// Hands the connection off, or keeps it and answers the request.
    pub(crate) async fn depart(&mut self) {
        let State::Departing { received, head_len, to } = &self.state else {
            unreachable!("only a connection that departs is handed off");
        };
        let (head, limits) = (&received[..*head_len], self.engine.head_limits());
        let mut slots = HeapFieldSlots::for_head(head);
        let request = match head.is_empty() {
            true => None,
            false => Some(parse_request(&mut slots, head, &limits)),
        };
        let departed = match request.transpose() {
            Ok(request) => {
                let (conn, moves, to) = (self.conn, self.moves(), *to);
                let (request, accepted_by) = (request.as_ref(), self.provenance.as_ref());
                let accepted_by = accepted_by.map(|it| &*it.accepted_by);
                let departure = Departure { conn, request, received, to, moves, accepted_by };
                self.engine.handler.depart(departure).await
            }
            // The node that answers the request refuses it.
            Err(_) => Departed::Kept,
        };
        match departed {
            Departed::Kept => self.keep(),
            Departed::Gone => drop(self.enter(State::Closing(End::MOVED))),
        }
    }

    fn keep(&mut self) {
        let State::Departing { received, .. } = &mut self.state else {
            unreachable!("a connection stays as it is until it is handed off or kept");
        };
        let received = std::mem::take(received);
        self.answers_next = !received.is_empty();
        let idle_until_ms = self.conn.timer().deadline_ms();
        self.enter(State::behind_request(received));
        if !self.answers_next {
            self.conn.timer().set(idle_until_ms, TimeoutCause::Idle);
        }
    }
}
