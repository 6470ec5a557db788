//! One request and its reply on a connection.
//!
//! ```text
//!   Header -+-> Stdout -> Padding -> Header          the head is read whole, the body passed on
//!           |-> Stderr -> Padding -> Header          line by line
//!           '-> End -> EndPadding -> Ending -> Ended
//! ```
//! The events depend on the bytes only, not on how they arrived.

use std::ops::Range;

use skep_http::gateway::{BodyMeter, GatewayHead, GatewayRequest, gather};
use skep_http::{BodyFraming, HeadLimits, Method};

use crate::head::HeadBuffer;
use crate::limits::{CONTENT_BYTES_MAX, RECORD_HEAD_BYTES};
use crate::record::{
    self, BEGIN_REQUEST, END_BYTES, END_REQUEST, FLAG_KEEP_CONN, REQUEST_ID, ROLE_RESPONDER,
    RecordHead, STDERR, STDIN, STDOUT, VERSION,
};
use crate::stderr::StderrLines;
use crate::{FcgiError, FcgiRefusal, FcgiRequestError, FcgiSettings, params};

/// What one call of [`FcgiExchange::receive`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcgiReceived {
    /// Bytes of the input that were consumed; all of them if there is no event.
    pub consumed: usize,
    pub event: Option<FcgiEvent>,
}

/// What an application said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcgiEvent {
    /// The head; once, and before the body.
    Head(GatewayHead),
    /// Bytes of the body: the range is of the input of this call. Never empty.
    Body(Range<usize>),
    /// A line for the log, at any time, without its end. Any bytes: escape them. Never empty.
    Stderr(Vec<u8>),
    /// The reply is complete. Whether the connection may carry another request:
    /// [`FcgiExchange::is_reusable`].
    End {
        /// The application's; php-fpm has 0, also for a fatal error.
        app_status: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Header,
    Stdout {
        left: usize,
        padding: usize,
    },
    Stderr {
        left: usize,
        padding: usize,
    },
    Padding(usize),
    End {
        padding: usize,
    },
    EndPadding {
        app_status: u32,
        left: usize,
    },
    /// Everything has arrived, but not everything has been said.
    Ending {
        app_status: u32,
    },
    Ended,
    Failed(FcgiError),
}

/// One request and its reply.
#[derive(Clone, Debug)]
pub struct FcgiExchange {
    /// Of the request's body, still to be sent.
    body_left: u64,
    /// Whether the application waits for the end of the body.
    is_awaited: bool,
    keep_conn: bool,
    dropped_fields: usize,
    place: Place,
    /// The beginning of a header, or of END_REQUEST.
    partial: Vec<u8>,
    head: HeadBuffer,
    /// Since the head is complete.
    meter: Option<BodyMeter>,
    is_stdout_ended: bool,
    stderr: StderrLines,
    /// Whether HEAD was asked.
    is_head: bool,
    limits: HeadLimits,
}

impl FcgiExchange {
    /// Appends the records of `request` to `out`, for a connection that is new or reusable: all of
    /// it if it has no body.
    ///
    /// # Errors
    /// The request cannot be made; `out` is as it was.
    pub fn start(
        out: &mut Vec<u8>,
        request: &GatewayRequest<'_>,
        settings: &FcgiSettings<'_>,
    ) -> Result<FcgiExchange, FcgiRequestError> {
        let body_left = match request.body {
            BodyFraming::None => 0,
            BodyFraming::Length(bytes) => bytes,
            BodyFraming::Chunked => return Err(FcgiRequestError::LengthUnknown),
        };
        let start = out.len();
        write_begin(out, settings.keep_conn);
        let dropped_fields = params::write(out, request, settings).inspect_err(|_| {
            out.truncate(start);
        })?;
        let exchange = FcgiExchange {
            body_left,
            dropped_fields,
            is_head: request.method == Method::Head,
            ..FcgiExchange::new(settings.keep_conn, settings.reply_head)
        };
        Ok(exchange.started(out))
    }

    /// Appends a GET of what the application answers itself, on a connection of its own: php-fpm's
    /// `ping.path` (the body is `pong`) and `pm.status_path`. Needs a free worker.
    ///
    /// # Errors
    /// [`FcgiRequestError::ParamLong`]; `out` is as it was.
    pub fn probe(
        out: &mut Vec<u8>,
        path: &[u8],
        query: &[u8],
        limits: &HeadLimits,
    ) -> Result<FcgiExchange, FcgiRequestError> {
        let start = out.len();
        write_begin(out, false);
        params::write_probe(out, path, query).inspect_err(|_| out.truncate(start))?;
        Ok(FcgiExchange::new(false, *limits).started(out))
    }

    fn new(keep_conn: bool, limits: HeadLimits) -> FcgiExchange {
        FcgiExchange {
            body_left: 0,
            is_awaited: true,
            keep_conn,
            dropped_fields: 0,
            place: Place::Header,
            partial: Vec::new(),
            head: HeadBuffer::default(),
            meter: None,
            is_stdout_ended: false,
            stderr: StderrLines::default(),
            is_head: false,
            limits,
        }
    }

    /// A body that is not there ends at once.
    fn started(mut self, out: &mut Vec<u8>) -> FcgiExchange {
        if self.body_left == 0 {
            out.extend_from_slice(&self.body_end());
        }
        self
    }

    /// Fields of the request that were dropped: their names could be read as others'.
    pub fn dropped_fields(&self) -> usize {
        self.dropped_fields
    }

    /// Most bytes of the body that may be sent in the next record.
    pub fn wanted(&self) -> usize {
        usize::try_from(self.body_left).unwrap_or(usize::MAX).min(CONTENT_BYTES_MAX)
    }

    /// Whether the application still waits for the body or its end.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// What to send in front of `bytes` bytes of the body.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than is [`FcgiExchange::wanted`].
    #[must_use]
    pub fn body_head(&mut self, bytes: usize) -> [u8; RECORD_HEAD_BYTES] {
        assert!(bytes > 0 && bytes <= self.wanted(), "more body than was announced");
        self.body_left -= bytes as u64;
        record::head(STDIN, bytes)
    }

    /// What to send to end the body. A client that breaks off does not end its body: close the
    /// connection then.
    ///
    /// # Panics
    /// If bytes are missing, or if it has ended.
    #[must_use]
    pub fn body_end(&mut self) -> [u8; RECORD_HEAD_BYTES] {
        assert!(
            self.is_awaited && self.body_left == 0,
            "an end before the body's, or a second one"
        );
        self.is_awaited = false;
        record::head(STDIN, 0)
    }

    /// Takes bytes that arrived. Call again with the unconsumed bytes, even if there are none, until it
    /// returns no event. Receive also while the body is sent: an application may answer first.
    ///
    /// # Errors
    /// What was expected and what found; close the connection. What was passed on of a body is
    /// not complete then, and not to be kept. The same error is returned from then on.
    pub fn receive(&mut self, input: &[u8]) -> Result<FcgiReceived, FcgiError> {
        let mut consumed = 0;
        while consumed < input.len()
            || matches!(self.place, Place::Ending { .. } | Place::Failed(_))
        {
            let event = match self.step(input, &mut consumed) {
                Ok(event) => event,
                Err(error) => {
                    self.place = Place::Failed(error);
                    return Err(error);
                }
            };
            if event.is_some() {
                return Ok(FcgiReceived { consumed, event });
            }
        }
        Ok(FcgiReceived { consumed, event: None })
    }

    /// The connection closed: an error unless the reply is complete.
    ///
    /// # Errors
    /// [`FcgiError::Closed`], or what went wrong before.
    pub fn close(&self) -> Result<(), FcgiError> {
        match self.place {
            Place::Ended => Ok(()),
            Place::Failed(error) => Err(error),
            _ => Err(FcgiError::Closed),
        }
    }

    /// The last line of STDERR of a reply that has failed, if it has no end.
    pub fn stderr_rest(&mut self) -> Option<Vec<u8>> {
        self.stderr.end_line()
    }

    /// Bytes of STDERR over the limits, of which no event tells.
    pub fn stderr_dropped_bytes(&self) -> u64 {
        self.stderr.dropped_bytes()
    }

    /// Whether the connection may carry another request, `unread_bytes` bytes of it not having
    /// been taken by [`FcgiExchange::receive`]: the application was told to keep it, and both sides
    /// are in step.
    pub fn is_reusable(&self, unread_bytes: usize) -> bool {
        self.keep_conn && self.place == Place::Ended && unread_bytes == 0 && !self.is_awaited
    }

    fn step(&mut self, input: &[u8], consumed: &mut usize) -> Result<Option<FcgiEvent>, FcgiError> {
        let rest = &input[*consumed..];
        match self.place {
            Place::Header => {
                if let Some(head) = gather(&mut self.partial, rest, consumed) {
                    self.place = self.begin(RecordHead::read(head))?;
                }
                Ok(None)
            }
            Place::Stdout { left, padding } => {
                let from = *consumed;
                let content = &rest[..left.min(rest.len())];
                let (taken, passed, head) = self.stdout(content)?;
                *consumed += taken;
                self.place = match left - taken {
                    0 => behind(padding),
                    left => Place::Stdout { left, padding },
                };
                let body = (passed > 0).then_some(FcgiEvent::Body(from..from + passed));
                Ok(head.map(FcgiEvent::Head).or(body))
            }
            Place::Stderr { left, padding } => {
                let (taken, line) = self.stderr.take(&rest[..left.min(rest.len())]);
                *consumed += taken;
                self.place = match left - taken {
                    0 => behind(padding),
                    left => Place::Stderr { left, padding },
                };
                Ok(line.map(FcgiEvent::Stderr))
            }
            Place::Padding(left) => {
                let taken = left.min(rest.len());
                *consumed += taken;
                self.place = behind(left - taken);
                Ok(None)
            }
            Place::End { padding } => {
                if let Some(content) = gather(&mut self.partial, rest, consumed) {
                    let app_status = self.end(content)?;
                    self.place = behind_end(app_status, padding);
                }
                Ok(None)
            }
            Place::EndPadding { app_status, left } => {
                let taken = left.min(rest.len());
                *consumed += taken;
                self.place = behind_end(app_status, left - taken);
                Ok(None)
            }
            Place::Ending { app_status } => Ok(Some(match self.stderr.end_line() {
                Some(line) => FcgiEvent::Stderr(line),
                None => {
                    self.place = Place::Ended;
                    FcgiEvent::End { app_status }
                }
            })),
            Place::Ended => Err(FcgiError::BehindEnd),
            Place::Failed(error) => Err(error),
        }
    }

    /// Whether such a record may come now.
    fn begin(&mut self, head: RecordHead) -> Result<Place, FcgiError> {
        let (left, padding) = (head.content_bytes, head.padding_bytes);
        match head.kind {
            _ if head.version != VERSION => Err(FcgiError::Version(head.version)),
            _ if head.request_id != REQUEST_ID => Err(FcgiError::RequestId(head.request_id)),
            STDOUT if self.is_stdout_ended => Err(FcgiError::StdoutEnded),
            STDOUT if left == 0 => {
                self.is_stdout_ended = true;
                Ok(behind(padding))
            }
            STDOUT => Ok(Place::Stdout { left, padding }),
            STDERR if left == 0 => Ok(behind(padding)),
            STDERR => Ok(Place::Stderr { left, padding }),
            END_REQUEST if left == END_BYTES => Ok(Place::End { padding }),
            END_REQUEST => Err(FcgiError::EndLength(left)),
            kind => Err(FcgiError::Type(kind)),
        }
    }

    /// Of bytes of STDOUT: how many are taken, how many of them are for the client, and the head,
    /// if it ends there.
    fn stdout(&mut self, content: &[u8]) -> Result<(usize, usize, Option<GatewayHead>), FcgiError> {
        match &mut self.meter {
            None => {
                let (taken, is_whole) = self.head.take(content, self.limits.head_bytes_max)?;
                if !is_whole {
                    return Ok((taken, 0, None));
                }
                let method = if self.is_head { Method::Head } else { Method::Get };
                let head = self.head.translate(method, &self.limits)?;
                self.head = HeadBuffer::default();
                self.meter = Some(BodyMeter::new(head.framing));
                Ok((taken, 0, Some(head)))
            }
            Some(BodyMeter::Nothing) => Ok((content.len(), 0, None)),
            Some(meter) => {
                let passed = meter.take(content.len()).map_err(|_| FcgiError::BodyLong)?;
                Ok((passed, passed, None))
            }
        }
    }

    fn end(&self, content: [u8; END_BYTES]) -> Result<u32, FcgiError> {
        let [a, b, c, d, protocol_status, ..] = content;
        let app_status = u32::from_be_bytes([a, b, c, d]);
        let refusal = match protocol_status {
            0 => None,
            1 => Some(FcgiRefusal::CantMultiplex),
            2 => Some(FcgiRefusal::Overloaded),
            3 => Some(FcgiRefusal::UnknownRole),
            other => Some(FcgiRefusal::Other(other)),
        };
        if let Some(refusal) = refusal {
            return Err(FcgiError::Refused(refusal));
        }
        match self.meter.map(|meter| meter.missing_bytes()) {
            None => Err(FcgiError::NoHead { app_status }),
            Some(0) => Ok(app_status),
            Some(missing_bytes) => Err(FcgiError::BodyShort { missing_bytes }),
        }
    }
}

fn behind(padding: usize) -> Place {
    if padding == 0 { Place::Header } else { Place::Padding(padding) }
}

fn behind_end(app_status: u32, left: usize) -> Place {
    match left {
        0 => Place::Ending { app_status },
        _ => Place::EndPadding { app_status, left },
    }
}

fn write_begin(out: &mut Vec<u8>, keep_conn: bool) {
    let flags = if keep_conn { FLAG_KEEP_CONN } else { 0 };
    out.extend_from_slice(&record::head(BEGIN_REQUEST, 8));
    out.extend_from_slice(&[0, ROLE_RESPONDER, flags, 0, 0, 0, 0, 0]);
}
