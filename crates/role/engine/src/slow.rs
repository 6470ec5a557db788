//! The slow requests of a connection: the handler answers each, and its body is read to the end
//! before the next request is parsed.

use std::time::Instant;

use skep_http::{HeapFieldSlots, Reject, RequestHead, parse_request};
use skep_serve::{ConnError, TimeoutCause};
use skep_telemetry::Counter;

use crate::closing::{End, rejected};
use crate::connection::Connection;
use crate::exchange::{Exchange, ExchangeError, Shared};
use crate::handler::Handler;
use crate::state::State;

impl<H: Handler> Connection<'_, H> {
    /// Completes a slow request.
    pub(crate) async fn slow(&mut self) {
        let State::Slow { received: mut head, head_len } = self.enter(State::Answering) else {
            unreachable!("only a request that takes time is answered slowly");
        };
        let rest = head.split_off(head_len);
        // Its allocation contained both parts, and the request may take long.
        head.shrink_to_fit();
        let next = match self.answer_slowly(&head, rest).await {
            Ok(rest) => State::behind_request(rest),
            Err(end) => State::Closing(end),
        };
        self.enter(next);
    }

    /// Answers the request of `head`, which `rest` follows. Returns the bytes after the request, or
    /// the end of the connection.
    async fn answer_slowly(&mut self, head: &[u8], rest: Vec<u8>) -> Result<Vec<u8>, End> {
        let began = Instant::now();
        let (conn, context) = (self.conn, &self.engine.context);
        let limits = self.engine.head_limits();
        let mut slots = HeapFieldSlots::for_head(head);
        let request = match parse_request(&mut slots, head, &limits) {
            Ok(request) => request,
            Err(reject) => return Err(self.reject_now(reject).await),
        };
        let keep_alive = self.may_go_on(&request);
        self.count_request();
        let Some(place) = context.begin_slow() else {
            return Err(self.overloaded().await);
        };
        let shared = Shared::default();
        let made = Exchange::new(conn, context, &request, rest, keep_alive, self.pace(), &shared);
        let mut exchange = match made {
            Ok(exchange) => exchange,
            Err(reject) => return Err(self.reject_now(reject).await),
        };
        let answered = self.engine.handler.slow(&request, &mut exchange).await;
        let finished = match answered {
            Ok(()) => exchange.reply.finish().await,
            Err(error) => Err(error),
        };
        if let Err(error) = finished {
            return Err(self.exchange_failed(&request, &mut exchange, &error, began).await);
        }
        self.finished(&request, &exchange.reply.state.summary, (began, Some(true)));
        drop(place);
        self.reuse(exchange).await
    }

    /// Returns the bytes after an answered request, so that the connection can be reused: the
    /// request's body is read to its end first. `Err`: it cannot be reused.
    async fn reuse(&mut self, exchange: Exchange<'_>) -> Result<Vec<u8>, End> {
        let context = &self.engine.context;
        let Exchange { mut body, reply } = exchange;
        if !reply.state.keep_alive {
            return Err(End::after_reply(context));
        }
        // Returns its output buffer to the worker.
        drop(reply);
        if !body.is_done() {
            self.enter(State::Draining);
            if !body.drain().await {
                return Err(End::after_reply(context));
            }
        }
        Ok(body.take_rest())
    }

    /// Handles a failure of the handler: sends an error reply if no reply was begun.
    async fn exchange_failed(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        error: &ExchangeError,
        began: Instant,
    ) -> End {
        let (status, mut end) = match error {
            ExchangeError::Client(ConnError::Expired(TimeoutCause::Body)) => {
                (408, End { counter: Counter::ClosedBodySlow, linger: true })
            }
            ExchangeError::Client(error) => (0, End::failed(error)),
            ExchangeError::Reject(reject) => (reject.status, End::REJECT),
            ExchangeError::BodyCutShort => (400, End::CLIENT),
            ExchangeError::ReplyCutShort(_) => (502, End::ERROR),
        };
        // A head that was not sent has promised nothing yet.
        if status != 0 && exchange.reply.take_back() {
            if !matches!(error, ExchangeError::ReplyCutShort(_)) {
                self.engine.context.counters().inc(rejected(status));
            }
            self.conn.timer().clear();
            let mut reply = exchange.reply.write();
            reply.close();
            reply.plain(status, b"");
            let _ = exchange.reply.flush().await;
            // A reset in reply to data that the client still sends would discard the error reply.
            end.linger = true;
        }
        let is_ours = matches!(error, ExchangeError::ReplyCutShort(_));
        let ended = (began, is_ours.then_some(false));
        self.finished(request, &exchange.reply.state.summary, ended);
        end
    }

    async fn reject_now(&self, reject: Reject) -> End {
        let mut output = self.engine.context.worker().take_output();
        let end = self.reject(reject, &mut output);
        match self.send(output).await {
            Ok(()) => end,
            Err(error) => End::failed(&error),
        }
    }

    async fn overloaded(&self) -> End {
        self.engine.context.counters().inc(Counter::RefusedOverload);
        self.reject_now(Reject { status: 503, reason: "overloaded" }).await
    }
}
