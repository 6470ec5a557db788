//! The interface of encoders of response bodies.

use std::fmt;

use skep_http::ResponseHead;

/// Decides on the encoding of each response that is passed to a client of HTTP/1.1.
pub trait ReplyCoding: fmt::Debug {
    /// How a response is changed; `None`: it is passed unchanged.
    fn of(&self, head: &ResponseHead<'_, '_>) -> Option<CodedReply>;
}

/// A response that is passed with an encoded body, or only with fields that state that its encoding
/// can vary.
pub struct CodedReply {
    /// Names of fields that are left out, in any case.
    pub without: Vec<String>,
    /// Complete field lines that are added.
    pub lines: Vec<u8>,
    /// The encoder of the body; `None`: the body is passed unchanged.
    pub body: Option<Box<dyn BodyCoder>>,
}

/// The encoder of one body.
pub trait BodyCoder {
    /// Encodes `data`, and appends the available output to `out`; with `flushes` all output up to
    /// here.
    ///
    /// # Errors
    /// Encoding cannot continue; a message was logged.
    fn push(&mut self, data: &[u8], flushes: bool, out: &mut Vec<u8>) -> Result<(), CoderFailed>;

    /// Ends the body, and appends the remaining output.
    ///
    /// # Errors
    /// As for [`BodyCoder::push`].
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<(), CoderFailed>;
}

/// A body cannot be encoded any further.
#[derive(Clone, Copy, Debug)]
pub struct CoderFailed;
