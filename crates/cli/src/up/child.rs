//! One process of a cluster, kept running until it is stopped.

use std::cell::RefCell;
use std::io::{self, PipeReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::environment::Environment;
use super::limits::{LAST_WORDS_MS, LINE_BYTES_MAX, RESTART_MS, RESTART_MS_MAX, YOUNG_MS};

/// The beginning of the line that a process prints when it is ready.
const READY: &str = "skep: ready on ";

/// An order to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildOrder {
    /// Run, and restart if the process dies.
    Run,
    /// End with this signal.
    End(Signal),
    /// End now.
    Kill,
}

/// An event of a child.
#[derive(Debug)]
pub(super) enum Event {
    /// The process listens.
    Ready { name: Rc<str> },
    /// The process died, and will be restarted.
    Died {
        name: Rc<str>,
        /// Exit status or signal, for people.
        how: String,
        /// The last line that it wrote to standard error.
        last_words: String,
        /// Pause before the restart, in milliseconds.
        again_ms: u64,
    },
    /// The process can't be started.
    Stillborn { name: Rc<str>, error: io::Error },
}

/// The settings that all children share.
pub(super) struct ChildSettings {
    pub(super) program: PathBuf,
    /// The environment in which processes run.
    pub(super) environment: Environment,
    /// The cluster's config.
    pub(super) config: PathBuf,
    /// The end of the pipe that children hold.
    pub(super) leash: PipeReader,
    /// The receiver of events.
    pub(super) events: mpsc::Sender<Event>,
}

/// Keeps the process `name` running, in a task of this thread. The task ends with the process, and then drops
/// `orders`.
pub(super) fn keep(settings: &Rc<ChildSettings>, name: &str, orders: watch::Receiver<ChildOrder>) {
    let (settings, name) = (Rc::clone(settings), name.into());
    tokio::task::spawn_local(ChildRunner { settings, name, orders, pause_ms: RESTART_MS }.run());
}

struct ChildRunner {
    settings: Rc<ChildSettings>,
    name: Rc<str>,
    orders: watch::Receiver<ChildOrder>,
    pause_ms: u64,
}

impl ChildRunner {
    async fn run(mut self) {
        while *self.orders.borrow() == ChildOrder::Run {
            let started = Instant::now();
            let mut child = match spawn(&self.settings, &self.name) {
                Ok(child) => child,
                Err(error) => {
                    let name = Rc::clone(&self.name);
                    return self.tell(Event::Stillborn { name, error }).await;
                }
            };
            let pid = child.id().unwrap_or(0);
            let out = child.stdout.take().map(|out| tokio::task::spawn_local(self.hear_out(out)));
            let last_words = Rc::default();
            let hear_err =
                |err| tokio::task::spawn_local(self.hear_err(err, Rc::clone(&last_words)));
            let err = child.stderr.take().map(hear_err);
            let status = self.until_end(&mut child).await;
            if let Some(err) = err {
                // Its netguard may outlive it with the same standard error, which is still read.
                let _ = timeout(Duration::from_millis(LAST_WORDS_MS), err).await;
            }
            if let Some(out) = out {
                let _ = out.await;
            }
            if *self.orders.borrow() == ChildOrder::Run {
                self.pause(started, pid, status, last_words.take()).await;
            }
        }
    }

    /// Waits for the child's end and executes orders meanwhile.
    async fn until_end(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            tokio::select! {
                status = child.wait() => return status,
                changed = self.orders.changed() => {
                    let order = changed.map(|()| *self.orders.borrow_and_update());
                    match order {
                        Ok(ChildOrder::Run) => {}
                        Ok(ChildOrder::End(signal)) => send(child, signal),
                        Ok(ChildOrder::Kill) => send(child, Signal::KILL),
                        // The sender of orders is gone.
                        Err(_) => {
                            send(child, Signal::KILL);
                            return child.wait().await;
                        }
                    }
                }
            }
        }
    }

    /// Reports that the child died, and waits until it may be restarted: the shorter it ran, the longer.
    async fn pause(
        &mut self,
        started: Instant,
        pid: u32,
        status: io::Result<ExitStatus>,
        last_words: String,
    ) {
        if started.elapsed() >= Duration::from_millis(YOUNG_MS) {
            self.pause_ms = RESTART_MS;
        }
        let how = format!("(process {pid}) {}", describe(status));
        let (name, again_ms) = (Rc::clone(&self.name), self.pause_ms);
        self.tell(Event::Died { name, how, last_words, again_ms }).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(self.pause_ms)) => {}
            _ = self.orders.changed() => {}
        }
        self.pause_ms = (self.pause_ms * 2).min(RESTART_MS_MAX);
    }

    async fn tell(&self, event: Event) {
        // There is no receiver when the cluster ends.
        let _ = self.settings.events.send(event).await;
    }

    /// Forwards the child's standard output, except for its ready line.
    fn hear_out(
        &self,
        out: impl AsyncRead + Unpin + 'static,
    ) -> impl Future<Output = ()> + 'static {
        let (events, name) = (self.settings.events.clone(), Rc::clone(&self.name));
        async move {
            let mut lines = Lines::new(out);
            while let Some(line) = lines.next().await {
                if line.starts_with(READY.as_bytes()) {
                    let _ = events.send(Event::Ready { name: Rc::clone(&name) }).await;
                } else {
                    write_line(&mut io::stdout().lock(), &[line]);
                }
            }
        }
    }

    /// Forwards the child's standard error, prefixed with its name; stores the last line in `last`.
    fn hear_err(
        &self,
        err: impl AsyncRead + Unpin + 'static,
        last: Rc<RefCell<String>>,
    ) -> impl Future<Output = ()> + 'static {
        let name = Rc::clone(&self.name);
        async move {
            let mut lines = Lines::new(err);
            while let Some(line) = lines.next().await {
                write_line(&mut io::stderr().lock(), &[name.as_bytes(), b": ", line]);
                let line = String::from_utf8_lossy(line);
                line.trim_start_matches("skep: ").clone_into(&mut last.borrow_mut());
            }
        }
    }
}

fn spawn(settings: &ChildSettings, name: &str) -> io::Result<Child> {
    let mut command = Command::from(settings.environment.command(&settings.program, name));
    command.arg("run").arg("--config").arg(&settings.config).args(["--as", name, "--leashed"]);
    if !io::IsTerminal::is_terminal(&io::stderr()) {
        command.env("NO_COLOR", "1");
    }
    command
        // Ctrl-C at the terminal is handled by this process, which stops the children in order.
        .process_group(0)
        .stdin(Stdio::from(settings.leash.try_clone()?))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

fn send(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The child may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("is out of sight: {error}"),
    }
}

/// Reads lines as they arrive; long ones are truncated.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R) -> Self {
        Self { input: BufReader::new(input), line: Vec::new() }
    }

    /// The next line without its line end; `None` after the last.
    async fn next(&mut self) -> Option<&[u8]> {
        self.line.clear();
        let mut is_begun = false;
        loop {
            let piece = self.input.fill_buf().await.ok()?;
            if piece.is_empty() {
                return is_begun.then_some(&self.line);
            }
            is_begun = true;
            let end = piece.iter().position(|&byte| byte == b'\n');
            let text = &piece[..end.unwrap_or(piece.len())];
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len()).min(text.len());
            self.line.extend_from_slice(&text[..room]);
            let used = text.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Some(&self.line);
            }
        }
    }
}

fn write_line(out: &mut impl Write, parts: &[&[u8]]) {
    let mut line = parts.concat();
    line.push(b'\n');
    // It is no error if our output was closed.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &'static [u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(text);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line.to_vec());
        }
        all
    }

    #[tokio::test]
    async fn lines_come_whole_and_the_last_may_lack_its_end() {
        assert_eq!(all(b"").await, [b""; 0]);
        assert_eq!(all(b"a\n\nb").await, [&b"a"[..], b"", b"b"]);
        assert_eq!(all(b"a\n").await, [b"a"]);
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_the_next_is_whole() {
        let text = [&[b'x'; 3 * LINE_BYTES_MAX][..], b"\nnext\n"].concat();
        let lines = all(text.leak()).await;
        assert_eq!((lines[0].len(), lines[1].as_slice()), (LINE_BYTES_MAX, &b"next"[..]));
    }

    #[test]
    fn ends_are_told_apart() {
        let describe = |raw| super::describe(Ok(ExitStatus::from_raw(raw)));
        assert_eq!(describe(0x100), "ended with code 1");
        assert_eq!(describe(9), "was killed by signal 9");
    }
}
