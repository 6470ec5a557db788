//! The thread of the links, and its command queue.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::hub::Shared;
use super::{LinkEvent, LinkSettings};
use crate::limits::COMMANDS_MAX;
use crate::stream::counts::StreamCounts;

/// The thread; ends with its links when this is dropped.
#[derive(Debug)]
pub(super) struct LinkThread<C> {
    teller: CommandSender<C>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    counts: Arc<StreamCounts>,
}

/// Sends commands of other threads to the handler.
#[derive(Debug)]
pub struct CommandSender<C>(mpsc::Sender<C>);

/// The command was not accepted: the queue is full or the handler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread of the links has ended or has too much to do")]
pub struct NotSent<C>(pub C);

impl<C> CommandSender<C> {
    /// Queues `command` for the handler as [`LinkEvent::Told`], in order.
    ///
    /// # Errors
    /// Returns `command` if too many are queued, or the thread has ended.
    pub fn tell(&self, command: C) -> Result<(), NotSent<C>> {
        self.0.try_send(command).map_err(|error| NotSent(error.into_inner()))
    }
}

impl<C> Clone for CommandSender<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Send + 'static> LinkThread<C> {
    /// Runs the task made by `set_up` within a runtime on a thread named `name`, and passes commands and
    /// ticks to the handler.
    pub(super) fn start<In: 'static, Out: 'static>(
        name: &str,
        settings: &LinkSettings,
        counts: &Arc<StreamCounts>,
        set_up: impl FnOnce() -> io::Result<Shared<In, Out, C>> + Send + 'static,
    ) -> io::Result<Self> {
        let (tell, told) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = oneshot::channel();
        let (report, started) = sync_channel(1);
        let tick = Duration::from_millis(settings.tick_ms.max(1));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let ready = local_runtime().and_then(|runtime| {
                let hub = runtime.block_on(async { set_up() })?;
                Ok((runtime, hub))
            });
            match ready {
                Ok((runtime, hub)) => {
                    let _ = report.send(Ok(()));
                    runtime.block_on(attend(&hub, told, tick, stopped));
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
        let (stop, thread) = (Some(stop), Some(thread));
        Ok(Self { teller: CommandSender(tell), stop, thread, counts: Arc::clone(counts) })
    }
}

impl<C> LinkThread<C> {
    pub(super) fn teller(&self) -> CommandSender<C> {
        self.teller.clone()
    }

    pub(super) fn counts(&self) -> Arc<StreamCounts> {
        Arc::clone(&self.counts)
    }
}

impl<C> Drop for LinkThread<C> {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The receiver no longer exists if the handler has panicked.
            let _ = stop.send(());
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the links had panicked");
        }
    }
}

fn local_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}

async fn attend<In, Out, C>(
    hub: &Shared<In, Out, C>,
    mut told: mpsc::Receiver<C>,
    tick: Duration,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            _ = ticks.tick() => hub.borrow_mut().tell(LinkEvent::Tick),
            Some(command) = told.recv() => hub.borrow_mut().tell(LinkEvent::Told(command)),
        }
    }
}
