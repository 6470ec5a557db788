//! Workers: one thread, one current-thread runtime, and their state.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, watch};

use crate::clock::monotonic_ms;
use crate::deadline::{Deadlines, TimeoutCause};
use crate::limits::{BLOCKING_THREADS_MAX, INPUT_BYTES, OUTPUTS_KEPT_MAX, SWEEP_INTERVAL_MS};
use crate::output::Output;

/// The state of one worker. Never shared between threads.
pub struct Worker {
    index: usize,
    deadlines: Deadlines,
    input: RefCell<Box<[u8]>>,
    outputs: RefCell<Vec<Output>>,
    drain: watch::Receiver<bool>,
    draining: Cell<bool>,
    ticks: RefCell<Vec<Box<dyn FnMut() -> bool>>>,
}

impl Worker {
    fn new(index: usize, drain: watch::Receiver<bool>) -> Self {
        Self {
            index,
            deadlines: Deadlines::default(),
            input: RefCell::new(vec![0; INPUT_BYTES].into_boxed_slice()),
            outputs: RefCell::default(),
            drain,
            draining: Cell::new(false),
            ticks: RefCell::default(),
        }
    }

    /// The index of this worker, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Milliseconds of the worker's clock (coarse, monotonic).
    pub fn now_ms(&self) -> u64 {
        monotonic_ms()
    }

    /// The timers of this worker's connections.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Whether the server is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Returns when the server begins to drain.
    pub async fn drain_started(&self) {
        let mut drain = self.drain.clone();
        // The sender lives as long as `Workers`; without it this worker ends, too.
        let _ = drain.wait_for(|&draining| draining).await;
    }

    /// Lends the worker's one read buffer. It must not be held over an `await`.
    pub fn with_input<R>(&self, job: impl FnOnce(&mut [u8]) -> R) -> R {
        job(&mut self.input.borrow_mut())
    }

    /// Takes an empty output from the pool.
    pub fn take_output(&self) -> Output {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns an output to the pool; its contents are cleared.
    pub fn put_output(&self, mut output: Output) {
        output.clear();
        let mut outputs = self.outputs.borrow_mut();
        if output.has_memory() && outputs.len() < OUTPUTS_KEPT_MAX {
            outputs.push(output);
        }
    }

    /// Runs `job` on this worker at every sweep (ten times a second), as long as it returns true. The job
    /// must not call this method.
    pub fn on_tick(&self, job: impl FnMut() -> bool + 'static) {
        self.ticks.borrow_mut().push(Box::new(job));
    }

    async fn sweep_for_ever(self: Rc<Self>) {
        let mut interval = tokio::time::interval(Duration::from_millis(SWEEP_INTERVAL_MS));
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.deadlines.sweep(self.now_ms());
            if self.is_draining() {
                self.deadlines.expire_idle(TimeoutCause::Drain);
            }
            self.ticks.borrow_mut().retain_mut(|job| job());
        }
    }
}

/// Returns after all tasks of this worker that are ready now have had their turn.
pub async fn others_first() {
    let mut has_waited = false;
    poll_fn(|cx| match std::mem::replace(&mut has_waited, true) {
        true => Poll::Ready(()),
        false => {
            // Moves this task to the end of the queue.
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A job to run on a worker's own thread.
type Job = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// A handle to one worker, usable from any thread.
#[derive(Clone)]
pub struct WorkerHandle {
    jobs: mpsc::UnboundedSender<Job>,
    runtime: tokio::runtime::Handle,
}

impl WorkerHandle {
    /// Runs `job` on the worker's thread, soon. Returns `false` if the worker has ended.
    pub fn run(&self, job: impl FnOnce(&Rc<Worker>) + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).is_ok()
    }

    /// The number of the worker's tasks that have not ended: one for each connection, and work after replies.
    pub fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}

/// The workers could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a worker: {0}")]
pub struct WorkersError(#[from] std::io::Error);

/// All workers of this process.
pub struct Workers {
    threads: Vec<JoinHandle<()>>,
    handles: Vec<WorkerHandle>,
    drain: watch::Sender<bool>,
    finish: watch::Sender<bool>,
}

impl Workers {
    /// The number of workers for the configured value: 0 means one per core.
    pub fn count(configured: u32) -> usize {
        match configured {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count as usize,
        }
    }

    /// Starts `count` workers, which are idle until their handles are used.
    pub fn start(count: usize) -> Result<Self, WorkersError> {
        let (drain, _) = watch::channel(false);
        let (finish, _) = watch::channel(false);
        let mut workers = Self { threads: Vec::new(), handles: Vec::new(), drain, finish };
        for index in 0..count {
            workers.spawn(index)?;
        }
        Ok(workers)
    }

    /// The handles, one per worker.
    pub fn handles(&self) -> &[WorkerHandle] {
        &self.handles
    }

    /// Drains all workers: no new connections, no further request on existing ones, idle ones are
    /// closed.
    pub fn drain(&self) {
        self.drain.send_replace(true);
    }

    /// Ends all workers and their tasks at once, and waits for them.
    pub fn stop(self) {
        self.finish.send_replace(true);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
    }

    fn spawn(&mut self, index: usize) -> Result<(), WorkersError> {
        #[expect(clippy::disallowed_methods, reason = "jobs come from start-up and reloads alone")]
        let (sender, queue) = mpsc::unbounded_channel();
        let drain = self.drain.subscribe();
        let finish = self.finish.subscribe();
        let (report, started) = std::sync::mpsc::sync_channel(1);
        // A local runtime stays on the thread that builds it.
        let thread =
            std::thread::Builder::new().name(format!("skep-{index}")).spawn(move || {
                match local_runtime(index) {
                    Ok(runtime) => {
                        let _ = report.send(Ok(runtime.handle().clone()));
                        run(runtime, Worker::new(index, drain), finish, queue);
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                    }
                }
            })?;
        let started = started.recv();
        let runtime = started.unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")))?;
        self.threads.push(thread);
        self.handles.push(WorkerHandle { jobs: sender, runtime });
        Ok(())
    }
}

fn local_runtime(index: usize) -> std::io::Result<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(format!("skep-disk-{index}"))
        .build_local(LocalOptions::default())
}

fn run(
    runtime: LocalRuntime,
    worker: Worker,
    mut finish: watch::Receiver<bool>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    runtime.block_on(async {
        let worker = Rc::new(worker);
        tokio::task::spawn_local(Rc::clone(&worker).sweep_for_ever());
        let watched = Rc::clone(&worker);
        tokio::task::spawn_local(async move {
            watched.drain_started().await;
            watched.draining.set(true);
        });
        loop {
            tokio::select! {
                Some(job) = jobs.recv() => job(&worker),
                _ = finish.wait_for(|&finished| finished) => break,
            }
        }
    });
    runtime.shutdown_background();
}
