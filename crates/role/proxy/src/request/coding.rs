//! What may encode the body of a response on its way to the client.

use std::fmt;

use skep_http::ResponseHead;

/// Decides for each response that is passed to a client of HTTP/1.1.
pub trait ReplyCoding: fmt::Debug {
    /// What becomes of a response; `None`: it is passed as it is.
    fn of(&self, head: &ResponseHead<'_, '_>) -> Option<CodedReply>;
}

/// A response that is passed with other bytes, or with a word that it could have been.
pub struct CodedReply {
    /// Fields that are left out; names in any case.
    pub without: Vec<String>,
    /// Whole lines that are added.
    pub lines: Vec<u8>,
    /// What encodes the body; `None`: it is passed as it is.
    pub body: Option<Box<dyn BodyCoder>>,
}

/// The encoder of one body.
pub trait BodyCoder {
    /// Encodes `data`, and appends to `out` what is ready. With `flushes` that is all of it.
    ///
    /// # Errors
    /// It can't go on; a message is in the log.
    fn push(&mut self, data: &[u8], flushes: bool, out: &mut Vec<u8>) -> Result<(), CoderFailed>;

    /// Ends the body, and appends what was not ready before.
    ///
    /// # Errors
    /// As for [`BodyCoder::push`].
    fn finish(self: Box<Self>, out: &mut Vec<u8>) -> Result<(), CoderFailed>;
}

/// A body can't be encoded any further.
#[derive(Clone, Copy, Debug)]
pub struct CoderFailed;
