//! The exchange with a member by HTTP/1.1.

use std::task::{Context as TaskContext, Poll};

use skep_engine::{ExchangeError, RequestBody};
use skep_serve::Conn;

use crate::members::cause::Cause;
use crate::request::asked::Asked;
use crate::request::attempt::Leg;
use crate::request::download::Download;
use crate::request::in_flight::InFlight;
use crate::request::recipient::Recipient;
use crate::request::times::Silence;
use crate::request::unread_response::AfterResponse;
use crate::request::upload::Upload;

/// The two directions are independent of each other.
pub(super) struct HttpLeg<'a> {
    pub(super) upload: &'a mut Upload,
    pub(super) download: Download,
}

impl HttpLeg<'_> {
    /// How the connection is treated.
    pub(super) fn after_response(self) -> AfterResponse {
        if self.download.is_reusable() && self.upload.is_complete() {
            return AfterResponse::Idle;
        }
        let has_all = self.upload.is_complete();
        match self.download.into_after_response() {
            // The connection of a member that still reads the request is not read any further.
            AfterResponse::Unread(_) if !has_all => AfterResponse::Close,
            behind => behind,
        }
    }
}

impl Leg for HttpLeg<'_> {
    fn poll_upload(
        &mut self,
        cx: &mut TaskContext<'_>,
        member: &Conn,
        body: Option<&mut RequestBody<'_>>,
        stall_ms: u64,
    ) -> Poll<Result<(), ExchangeError>> {
        self.upload.poll(cx, member, body, stall_ms)
    }

    fn is_uploaded(&self) -> bool {
        self.upload.is_over()
    }

    fn take_asked(&mut self) -> bool {
        false
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut Recipient<'_, '_>,
        in_flight: &mut InFlight,
    ) -> Result<(), Cause> {
        self.download.receive(bytes, asked, reply, in_flight)
    }

    fn pause(&mut self, reply: &mut Recipient<'_, '_>) -> Result<bool, Cause> {
        self.download.pause(reply)
    }

    fn end(&mut self, reply: &mut Recipient<'_, '_>, _: &InFlight) -> Result<(), Cause> {
        self.download.end(reply)
    }

    fn is_complete(&self) -> bool {
        self.download.is_complete()
    }

    fn timeout_ms(&self, silence: &Silence) -> u64 {
        self.download.timeout_ms(silence)
    }

    fn cause(&self, cause: Cause) -> Cause {
        self.download.cause(cause)
    }
}
