//! Standard output behind a thread: its reader may stop reading, as a pager does, and nothing else must wait
//! for that.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Maximum number of texts that wait to be written: the samples of some minutes at the shortest interval.
const TEXTS_MAX: usize = 1_024;

/// Writes texts in order.
pub(super) struct Printer {
    texts: SyncSender<String>,
    ended: Receiver<io::Result<()>>,
    dropped: u64,
}

/// The outcome of printing.
#[derive(Debug)]
pub(super) enum PrintEnd {
    /// All texts were written except `dropped` ones, for which there was no room.
    Written { dropped: u64 },
    /// The rest was not read in time.
    Blocked,
    /// Writing failed.
    Failed(io::Error),
}

impl Printer {
    /// Starts writing to `out`; calls `failed` as soon as that fails.
    pub(super) fn begin(
        mut out: impl Write + Send + 'static,
        failed: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (texts, queue) = sync_channel::<String>(TEXTS_MAX);
        let (end, ended) = sync_channel(1);
        thread::Builder::new().name("probe-print".to_owned()).spawn(move || {
            let mut write =
                |text: String| out.write_all(text.as_bytes()).and_then(|()| out.flush());
            let result = queue.iter().try_for_each(&mut write);
            if result.is_err() {
                failed();
            }
            // The receiver is gone if the printer was dropped.
            let _ = end.send(result);
        })?;
        Ok(Self { texts, ended, dropped: 0 })
    }

    /// Queues a text; if there is no room, it is dropped and counted.
    pub(super) fn print(&mut self, text: String) {
        if let Err(TrySendError::Full(_)) = self.texts.try_send(text) {
            self.dropped += 1;
        }
    }

    /// Writes the last text, and waits until all are written, at most `wait_ms_max` if given.
    pub(super) fn end(self, last: String, wait_ms_max: Option<u64>) -> PrintEnd {
        let Self { texts, ended, dropped } = self;
        // A failure is reported by the thread, below.
        let is_queued = match wait_ms_max {
            None => texts.send(last).is_ok(),
            Some(_) => !matches!(texts.try_send(last), Err(TrySendError::Full(_))),
        };
        drop(texts);
        let wait = Duration::from_millis(wait_ms_max.unwrap_or(u64::MAX));
        match ended.recv_timeout(wait) {
            Ok(Err(error)) => PrintEnd::Failed(error),
            Ok(Ok(())) => PrintEnd::Written { dropped: dropped + u64::from(!is_queued) },
            Err(RecvTimeoutError::Timeout) => PrintEnd::Blocked,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the thread that prints says how it ends")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_output_that_nobody_reads_holds_nothing_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut printer = Printer::begin(ours, || ()).unwrap();
        let line = format!("{}\n", "x".repeat(1_023));
        // More than fits into the socket and the queue.
        while printer.dropped < 3 {
            printer.print(line.clone());
        }
        assert!(matches!(printer.end("last\n".to_owned(), Some(10)), PrintEnd::Blocked));
        drop(theirs);
    }

    #[test]
    fn what_was_queued_is_written_before_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut printer = Printer::begin(ours, || ()).unwrap();
        printer.print("a\n".to_owned());
        let end = printer.end("b\n".to_owned(), None);
        assert!(matches!(end, PrintEnd::Written { dropped: 0 }), "{end:?}");
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\nb\n");
    }

    #[test]
    fn a_reader_that_has_left_is_told_at_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (tell, told) = sync_channel(1);
        let mut printer = Printer::begin(ours, move || tell.send(()).unwrap()).unwrap();
        printer.print("a\n".to_owned());
        told.recv().unwrap();
        let end = printer.end("b\n".to_owned(), None);
        assert!(
            matches!(&end, PrintEnd::Failed(error) if error.kind() == io::ErrorKind::BrokenPipe)
        );
    }
}
