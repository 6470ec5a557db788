//! Requests at planned times, whatever becomes of them: an open loop. Each goes over an idle connection, or a
//! new one where there is none, and its time counts from the plan, not from when it was sent.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skep_testbed::{Machine, TestbedError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

use super::http::{Body, BodySource, Connection};
use super::mix::MixObject;
use super::report::Failure;
use super::watch::us;
use super::{Target, failed, files_for};
use crate::limits::{EXAMPLES_MAX, IN_FLIGHT_MAX};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Longest sleep of the clock that begins requests, in milliseconds: so soon it sees that it is to stop.
const SLEEP_MS: u64 = 20;

/// Many objects, asked for by a plan.
#[derive(Clone, Debug)]
pub struct PlannedLoad {
    pub address: SocketAddr,
    pub objects: Arc<[MixObject]>,
    /// When which object is asked for: microseconds since the beginning, in order, and its place in `objects`.
    pub plan: Arc<[(u64, u32)]>,
    /// Time for each request with its connection, in milliseconds.
    pub timeout_ms: u64,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedReport {
    /// Of each request, by its place in the plan.
    pub responses: Vec<PlannedResponse>,
    /// The first failures, in words.
    pub examples: Vec<String>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedResponse {
    /// From its planned time to the last byte, in microseconds; `None` if it failed.
    pub took_us: Option<u64>,
    /// How much later than planned it was begun, in microseconds.
    pub late_us: u64,
    /// Whether the node that answered says that it had the object in its memory.
    pub is_local: bool,
}

/// A plan in progress; cancelled when dropped.
pub struct RunningPlan {
    begin: Instant,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<io::Result<PlannedReport>>>>,
}

impl PlannedLoad {
    /// Begins it in a machine.
    pub fn start_in(self, machine: &Machine) -> Result<RunningPlan, TestbedError> {
        if self.plan.is_empty() || self.plan.iter().any(|it| it.1 as usize >= self.objects.len()) {
            return Err(TestbedError::Unusable("a plan of no requests, or no objects".to_owned()));
        }
        files_for(self.plan.len().min(IN_FLIGHT_MAX))?;
        let (begin, is_stopped) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        // Room for all of them: the clock never waits.
        let (due, coming) = channel(self.plan.len());
        let clock = Clock { begin, plan: Arc::clone(&self.plan), is_stopped: is_stopped.clone() };
        // Timers of the runtime have a grain of 1 ms, as long as a short response takes.
        let clock = move || clock.run(&due);
        thread::Builder::new().spawn(clock).map_err(failed("cannot start a thread"))?;
        let thread = machine.spawn(move || self.play(begin, coming))?;
        Ok(RunningPlan { begin, is_stopped, thread: Some(thread) })
    }

    fn play(self, begin: Instant, coming: Receiver<usize>) -> io::Result<PlannedReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = PlannedReport {
            responses: vec![PlannedResponse::default(); self.plan.len()],
            examples: Vec::new(),
        };
        let player = Rc::new(Player {
            load: self,
            begin,
            idle: RefCell::default(),
            buffers: RefCell::default(),
            report: RefCell::new(report),
        });
        LocalSet::new().block_on(&runtime, play(Rc::clone(&player), coming));
        Ok(player.report.take())
    }
}

impl RunningPlan {
    /// When it began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// Waits for the end of all requests.
    pub fn finish(mut self) -> Result<PlannedReport, TestbedError> {
        let ended = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(entered)) => entered.flatten(),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Err(io::Error::other("it was waited for twice")),
        };
        ended.map_err(failed("cannot run a plan"))
    }
}

impl Drop for RunningPlan {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Says when each request is due.
struct Clock {
    begin: Instant,
    plan: Arc<[(u64, u32)]>,
    is_stopped: Arc<AtomicBool>,
}

impl Clock {
    fn run(self, due: &Sender<usize>) {
        for (place, (at_us, _)) in self.plan.iter().enumerate() {
            let at = self.begin + Duration::from_micros(*at_us);
            while let Some(left) = at.checked_duration_since(Instant::now()) {
                if self.is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(left.min(Duration::from_millis(SLEEP_MS)));
            }
            if due.try_send(place).is_err() {
                return;
            }
        }
    }
}

/// What requests share.
struct Player {
    load: PlannedLoad,
    begin: Instant,
    /// Connections that no request uses, the last used one last.
    idle: RefCell<Vec<Connection>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    report: RefCell<PlannedReport>,
}

async fn play(player: Rc<Player>, mut coming: Receiver<usize>) {
    let mut requests = JoinSet::new();
    while let Some(place) = coming.recv().await {
        requests.spawn_local(Rc::clone(&player).play_one(place));
        while requests.try_join_next().is_some() {}
    }
    requests.join_all().await;
}

impl Player {
    async fn play_one(self: Rc<Self>, place: usize) {
        let (at_us, object) = self.load.plan[place];
        let object = &self.load.objects[object as usize];
        let late_us = us(self.begin.elapsed()).saturating_sub(at_us);
        let limit = Duration::from_millis(self.load.timeout_ms);
        let late = Err(Failure::Timeout("no complete response in time"));
        let ended = timeout(limit, self.request(object)).await.unwrap_or(late);
        let took_us = us(self.begin.elapsed()).saturating_sub(at_us);
        let mut report = self.report.borrow_mut();
        report.responses[place] = match ended {
            Ok(source) => {
                let is_local = source == BodySource::Local;
                PlannedResponse { took_us: Some(took_us), late_us, is_local }
            }
            Err(failure) => {
                if report.examples.len() < EXAMPLES_MAX {
                    report.examples.push(format!("at {at_us} us: {}: {failure}", object.path));
                }
                PlannedResponse { took_us: None, late_us, is_local: false }
            }
        };
    }

    /// One request; an idle connection that is found closed is replaced once.
    async fn request(&self, object: &MixObject) -> Result<BodySource, Failure> {
        let idle = self.idle.borrow_mut().pop();
        if let Some(connection) = idle {
            match self.ask(connection, object).await {
                Err((Failure::NoResponse | Failure::Reset, false)) => {}
                ended => return ended.map_err(|(failure, _)| failure),
            }
        }
        let connection = Connection::open(self.load.address, None, 0).await?;
        self.ask(connection, object).await.map_err(|(failure, _)| failure)
    }

    /// Asks and compares each byte; a failure comes with whether there was a response.
    async fn ask(
        &self,
        mut connection: Connection,
        object: &MixObject,
    ) -> Result<BodySource, (Failure, bool)> {
        let target = Target::new(self.load.address, &object.path);
        let head = connection.ask(&target, false).await.map_err(|failure| (failure, false))?;
        let answered = |failure| (failure, true);
        let (issue, _) = object.said(&head, Instant::now()).map_err(answered)?;
        let mut body = Body::new(&head, Some(issue.pattern));
        let spare = self.buffers.borrow_mut().pop();
        let mut buffer = spare.unwrap_or_else(|| vec![0; READ_BYTES]);
        while body.left() > 0 {
            connection.read(&mut body, &mut buffer).await.map_err(answered)?;
        }
        self.buffers.borrow_mut().push(buffer);
        if connection.has_surplus() {
            return Err((Failure::Malformed("bytes after the end of the response"), true));
        }
        if !head.closes {
            self.idle.borrow_mut().push(connection);
        }
        Ok(head.source)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use skep_workload::Pattern;

    use super::super::content::{Content, Issue};
    use super::*;

    /// Answers every request with ten bytes of a pattern, and says that they were in memory.
    fn serve(stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut writer, mut line) = (stream, String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            if line == "\r\n" {
                let mut body = [0; 10];
                Pattern { seed: 7 }.fill(0, &mut body);
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Status: skep; hit\r\n\r\n";
                writer.write_all(&[head.as_bytes(), &body].concat()).unwrap();
            }
            line.clear();
        }
    }

    #[test]
    fn each_request_comes_when_it_is_due_and_has_its_response() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            listener.incoming().for_each(|stream| drop(thread::spawn(|| serve(stream.unwrap()))));
        });
        let object = |seed| MixObject {
            path: "/x".to_owned(),
            content: Content::Always(Issue { bytes: 10, pattern: Pattern { seed } }),
        };
        let plan: Arc<[_]> = (0..20).map(|at| (at * 1_000, u32::from(at == 9))).collect();
        let load = PlannedLoad {
            address,
            objects: [object(7), object(8)].into(),
            plan: Arc::clone(&plan),
            timeout_ms: 5_000,
        };
        let (begin, (due, coming)) = (Instant::now(), channel(plan.len()));
        let clock = Clock { begin, plan, is_stopped: Arc::default() };
        thread::spawn(move || clock.run(&due));
        let report = load.play(begin, coming).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(19));
        for (place, response) in report.responses.iter().enumerate() {
            assert_eq!(response.took_us.is_none(), place == 9, "{place}: another pattern");
            assert_eq!(response.is_local, place != 9);
        }
        assert_eq!(report.examples.len(), 1, "{:?}", report.examples);
    }
}
