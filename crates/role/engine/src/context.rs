//! The state that all connections of one worker share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_http::date::DATE_BYTES;
use skep_http::{HttpDate, RequestHead, Version};
use skep_serve::{Worker, unix_ms};
use skep_telemetry::{CoreCounters, LogHandle, LogRecord, WorkerLog};

use crate::owed::Unfinished;
use crate::settings::EngineSettings;
use crate::summary::Summary;

const DATE_PREFIX: &[u8; 6] = b"Date: ";
const DATE_LINE_BYTES: usize = DATE_PREFIX.len() + DATE_BYTES + 2;

/// One worker's share of the engine. Never leaves its thread.
pub struct Context {
    worker: Rc<Worker>,
    settings: RefCell<Rc<EngineSettings>>,
    counters: Arc<CoreCounters>,
    log: RefCell<WorkerLog>,
    date: RefCell<DateLine>,
    slow_requests: Cell<usize>,
}

struct DateLine {
    unix_s: u64,
    line: [u8; DATE_LINE_BYTES],
}

impl Context {
    /// Creates the worker's context. It flushes its log ten times per second, and checks whether a
    /// reload has replaced `settings`.
    pub fn new(
        worker: &Rc<Worker>,
        settings: Arc<ArcSwap<EngineSettings>>,
        counters: Arc<CoreCounters>,
        log: &LogHandle,
    ) -> Rc<Self> {
        let mut in_force = settings.load_full();
        let context = Rc::new(Self {
            worker: Rc::clone(worker),
            settings: RefCell::new(Rc::new(EngineSettings::clone(&in_force))),
            log: RefCell::new(log.worker(Arc::clone(&counters))),
            counters,
            date: RefCell::new(DateLine { unix_s: u64::MAX, line: [0; DATE_LINE_BYTES] }),
            slow_requests: Cell::new(0),
        });
        let ticking = Rc::downgrade(&context);
        worker.on_tick(move || {
            let Some(context) = ticking.upgrade() else { return false };
            context.log.borrow_mut().tick();
            let current = settings.load();
            if !Arc::ptr_eq(&current, &in_force) {
                in_force = Arc::clone(&current);
                *context.settings.borrow_mut() = Rc::new(EngineSettings::clone(&in_force));
            }
            true
        });
        context
    }

    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The settings in force.
    pub fn settings(&self) -> Rc<EngineSettings> {
        Rc::clone(&self.settings.borrow())
    }

    pub fn counters(&self) -> &Arc<CoreCounters> {
        &self.counters
    }

    /// Appends `Date: ...\r
    /// `; formatted once per second.
    pub fn write_date(&self, out: &mut Vec<u8>) {
        self.with_date_line(|line| out.extend_from_slice(line));
    }

    /// The value of `Date` for this second.
    pub fn date(&self) -> [u8; DATE_BYTES] {
        self.with_date_line(|line| {
            let mut date = [0; DATE_BYTES];
            date.copy_from_slice(&line[DATE_PREFIX.len()..][..DATE_BYTES]);
            date
        })
    }

    fn with_date_line<R>(&self, look: impl FnOnce(&[u8; DATE_LINE_BYTES]) -> R) -> R {
        let unix_s = unix_ms() / 1000;
        let mut date = self.date.borrow_mut();
        if date.unix_s != unix_s {
            date.unix_s = unix_s;
            date.line[..DATE_PREFIX.len()].copy_from_slice(DATE_PREFIX);
            date.line[DATE_PREFIX.len()..][..DATE_BYTES]
                .copy_from_slice(&HttpDate(unix_s).format());
            date.line[DATE_LINE_BYTES - 2..].copy_from_slice(b"\r\n");
        }
        look(&date.line)
    }

    /// Whether requests are logged.
    pub(crate) fn log_is_on(&self) -> bool {
        self.log.borrow().is_on()
    }

    /// Logs one finished request.
    pub(crate) fn log(
        &self,
        client: std::net::IpAddr,
        accepted_by: Option<&str>,
        request: &RequestHead<'_, '_>,
        summary: &Summary,
        total_us: u64,
    ) {
        use skep_http::Known;
        let mut log = self.log.borrow_mut();
        if !log.is_on() {
            return;
        }
        log.push(&LogRecord {
            unix_ms: unix_ms(),
            client,
            method: request.method.as_str().as_bytes(),
            target: request.target.as_bytes(),
            version10: request.version == Version::Http10,
            host: request.host,
            status: summary.status,
            bytes_sent: summary.body_bytes,
            referer: request.fields.known(Known::Referer).unwrap_or_default(),
            user_agent: request.fields.known(Known::UserAgent).unwrap_or_default(),
            node: summary.node.as_deref(),
            accepted_by,
            cache: summary.cache,
            total_us,
            queue_us: summary.queue_us,
            connect_us: summary.connect_us,
            first_byte_us: summary.first_byte_us,
        });
    }

    /// Takes a slot for a request in progress; `None` if all are taken.
    pub(crate) fn begin_slow(&self) -> Option<SlowRequestPermit<'_>> {
        if self.slow_requests.get() >= self.settings.borrow().slow_requests_max {
            return None;
        }
        self.slow_requests.update(|taken| taken + 1);
        let taken = &self.slow_requests;
        Some(SlowRequestPermit { taken, _unfinished: Unfinished::new(&self.counters) })
    }
}

/// A slot for a request in progress.
pub(crate) struct SlowRequestPermit<'c> {
    taken: &'c Cell<usize>,
    _unfinished: Unfinished<'c>,
}

impl Drop for SlowRequestPermit<'_> {
    fn drop(&mut self) {
        self.taken.update(|taken| taken - 1);
    }
}
