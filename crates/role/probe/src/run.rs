//! A run: turns at an interval, in each of which all URLs are measured one after the other.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::database::SampleWriter;
use crate::measure::Prober;
use crate::plan::ProbePlan;
use crate::sample::ProbeSample;
use crate::schedule::Schedule;
use crate::store::SampleStore;
use crate::summary::ProbeSummary;
use crate::tls::{self, CaError};
use crate::url::ProbeUrl;
use skep_database::DatabaseError;

/// A run cannot begin, or has ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Servers cannot be verified.
    #[error(transparent)]
    Trust(#[from] CaError),
    /// Samples cannot be stored.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// The result of a run.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// The measurements, stored or not.
    pub summary: ProbeSummary,
    /// Samples that were measured but are not in the file.
    pub samples_lost: u64,
    /// The reason why it ended early, if it did.
    pub fault: Option<ProbeError>,
}

/// Measures until `stop` or the last turn, and calls `each` with each sample. A target that is down is
/// a sample, too.
///
/// # Errors
/// The certificates or the file cannot be opened. A later failure of the file is the fault in the
/// outcome.
pub async fn run_probe(
    plan: &ProbePlan,
    stop: impl Future<Output = ()>,
    each: impl FnMut(&ProbeSample),
) -> Result<ProbeOutcome, ProbeError> {
    let tls = tls::connector(plan.ca.as_deref(), plan.urls.iter().any(ProbeUrl::is_tls))?;
    let store = SampleStore::begin(plan.out.clone(), SampleWriter::open(plan, unix_ms())?)?;
    let begin = Instant::now();
    let mut run = Run {
        plan,
        prober: Prober::new(tls, plan.timeout_ms),
        begin,
        schedule: Schedule::new(begin, plan.interval_ms),
        each,
        store,
        summary: ProbeSummary::of_totals(),
    };
    let result = match run.turns(pin!(stop)).await {
        Ok(()) => run.store.finish(run.schedule.skipped()).await,
        Err(error) => Err(error),
    };
    run.summary.turns_skipped = run.schedule.skipped();
    let (summary, samples_lost) = (run.summary, run.store.pending());
    Ok(ProbeOutcome { summary, samples_lost, fault: result.err().map(ProbeError::from) })
}

/// A run in progress.
struct Run<'a, F> {
    plan: &'a ProbePlan,
    prober: Prober,
    begin: Instant,
    schedule: Schedule,
    each: F,
    store: SampleStore,
    summary: ProbeSummary,
}

#[derive(PartialEq, Eq)]
enum TurnEnd {
    Complete,
    Stopped,
}

impl<F: FnMut(&ProbeSample)> Run<'_, F> {
    async fn turns(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), DatabaseError> {
        let mut turn = 0;
        while self.plan.turns_max.is_none_or(|max| turn < max) {
            tokio::select! {
                () = tokio::time::sleep_until(self.schedule.due().into()) => {}
                () = &mut stop => break,
            }
            if self.turn(turn, stop.as_mut()).await? == TurnEnd::Stopped {
                break;
            }
            self.schedule.end_turn(Instant::now());
            self.store.store(self.schedule.skipped()).await?;
            turn += 1;
        }
        Ok(())
    }

    /// Measures all URLs once, until `stop`: a measurement that is then in progress is discarded.
    async fn turn(
        &mut self,
        turn: u64,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<TurnEnd, DatabaseError> {
        for url in &self.plan.urls {
            let at_unix_ms = unix_ms();
            let since_begin_ms =
                u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            let measured = tokio::select! {
                sample = self.prober.measure(url) => sample,
                () = &mut stop => return Ok(TurnEnd::Stopped),
            };
            let sample = ProbeSample { turn, at_unix_ms, since_begin_ms, ..measured };
            self.summary.add(&sample);
            (self.each)(&sample);
            self.store.push(sample);
            if self.store.is_due() {
                self.store.store(self.schedule.skipped()).await?;
            }
        }
        Ok(TurnEnd::Complete)
    }
}

/// The wall clock, for time stamps only: it may jump.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
