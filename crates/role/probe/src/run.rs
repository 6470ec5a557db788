//! A run: turns at an interval, in each of which all URLs are measured one after the other.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::database::{ProbeDatabaseError, SampleWriter};
use crate::measure::Prober;
use crate::plan::ProbePlan;
use crate::sample::ProbeSample;
use crate::schedule::Schedule;
use crate::summary::ProbeSummary;
use crate::trust::{self, CaError};
use crate::url::ProbeUrl;

/// A run has ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Servers cannot be verified.
    #[error(transparent)]
    Trust(#[from] CaError),
    /// Samples cannot be stored.
    #[error(transparent)]
    Database(#[from] ProbeDatabaseError),
    /// Samples cannot be shown.
    #[error("cannot write the sample: {0}")]
    Output(#[from] io::Error),
}

/// Measures until `stop` or the last turn, and calls `each` with each sample. A target that is down is
/// a sample, too.
///
/// # Errors
/// Certificates, the file or the output are not there, or are there no longer.
pub async fn run_probe(
    plan: &ProbePlan,
    stop: impl Future<Output = ()>,
    each: impl FnMut(&ProbeSample) -> io::Result<()>,
) -> Result<ProbeSummary, ProbeError> {
    let tls = trust::connector(plan.ca.as_deref(), plan.urls.iter().any(ProbeUrl::is_tls))?;
    let mut writer = SampleWriter::open(plan, unix_ms())?;
    let begin = Instant::now();
    let mut schedule = Schedule::new(begin, plan.interval_ms);
    let prober = Prober::new(tls, plan.timeout_ms);
    let mut run = Run { plan, prober, begin, each, summary: ProbeSummary::default() };
    let mut stop = pin!(stop);
    let mut turn = 0;
    while plan.turns_max.is_none_or(|max| turn < max) {
        tokio::select! {
            () = tokio::time::sleep_until(schedule.due().into()) => {}
            () = &mut stop => break,
        }
        let measured = run.turn(turn, stop.as_mut()).await;
        if measured.ended == TurnEnd::Complete {
            schedule.end_turn(Instant::now());
        }
        writer.store(&measured.samples, schedule.skipped())?;
        match measured.ended {
            TurnEnd::Complete => turn += 1,
            TurnEnd::Stopped => break,
            TurnEnd::NoOutput(kind) => return Err(io::Error::from(kind).into()),
        }
    }
    run.summary.turns_skipped = schedule.skipped();
    Ok(run.summary)
}

/// A run that goes on.
struct Run<'a, F> {
    plan: &'a ProbePlan,
    prober: Prober,
    begin: Instant,
    each: F,
    summary: ProbeSummary,
}

/// A turn, or the part of it that took place.
struct Turn {
    samples: Vec<ProbeSample>,
    ended: TurnEnd,
}

#[derive(PartialEq, Eq)]
enum TurnEnd {
    Complete,
    Stopped,
    /// Samples can no longer be shown.
    NoOutput(io::ErrorKind),
}

impl<F: FnMut(&ProbeSample) -> io::Result<()>> Run<'_, F> {
    /// Measures all URLs once, until `stop`: a measurement that goes on then is dropped.
    async fn turn(&mut self, turn: u64, mut stop: Pin<&mut impl Future<Output = ()>>) -> Turn {
        let mut samples = Vec::with_capacity(self.plan.urls.len());
        for url in &self.plan.urls {
            let at_unix_ms = unix_ms();
            let since_begin_ms =
                u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            let measured = tokio::select! {
                sample = self.prober.measure(url) => sample,
                () = &mut stop => return Turn { samples, ended: TurnEnd::Stopped },
            };
            let sample = ProbeSample { turn, at_unix_ms, since_begin_ms, ..measured };
            self.summary.add(&sample);
            let shown = (self.each)(&sample);
            samples.push(sample);
            if let Err(error) = shown {
                return Turn { samples, ended: TurnEnd::NoOutput(error.kind()) };
            }
        }
        Turn { samples, ended: TurnEnd::Complete }
    }
}

/// The wall clock, for stamps only: it may jump.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
