//! Readers of one large object, each of parts at random positions, like viewers who seek in a film.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skep_units::Rng;
use skep_workload::Pattern;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::http::{Body, Connection};
use super::report::{Failure, Tally};
use super::watch::{Watch, us};
use super::{Load, Target};

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Readers of parts of one object.
#[derive(Clone, Debug)]
pub struct PartReaders {
    /// The object's locations, used by readers in turn.
    pub targets: Vec<Target>,
    /// Its length, in bytes.
    pub object_bytes: u64,
    /// Length of a part, in bytes.
    pub part_bytes: u64,
    /// Number of concurrent readers, each with a persistent connection.
    pub readers: usize,
    /// Number of parts in total.
    pub count: u64,
    /// Rate of each reader, in bytes per second; 0: as fast as possible.
    pub rate_bytes_s: u64,
    /// Seed of the positions.
    pub seed: u64,
    /// The expected content of the object.
    pub pattern: Option<Pattern>,
    /// Timeout of each part, in milliseconds.
    pub timeout_ms: u64,
}

/// The state that readers share.
struct Shared {
    plan: PartReaders,
    begun: AtomicU64,
    watch: Watch,
}

impl Load for PartReaders {
    fn in_flight(&self) -> usize {
        self.readers
    }

    async fn play(self, watch: Watch) -> Tally {
        let readers = self.readers;
        let shared = Arc::new(Shared { plan: self, begun: AtomicU64::new(0), watch });
        let mut tasks = JoinSet::new();
        for index in 0..readers {
            tasks.spawn(read(Arc::clone(&shared), index));
        }
        super::sum(tasks).await
    }
}

async fn read(shared: Arc<Shared>, index: usize) -> Tally {
    let Shared { plan, begun, watch } = &*shared;
    let target = &plan.targets[index % plan.targets.len()];
    let (mut tally, mut kept) = (Tally::new(), None);
    let limit = Duration::from_millis(plan.timeout_ms);
    while !watch.is_stopped() {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        if number >= plan.count {
            break;
        }
        tally.begun();
        watch.begun();
        tokio::select! {
            ended = timeout(limit, read_part(plan, target, number, &mut kept, &mut tally)) => {
                let ended = ended.unwrap_or(Err(Failure::Timeout("no complete part in time")));
                watch.ended(ended.is_ok());
                tally.ended(ended);
            }
            () = watch.stopped() => tally.stopped(),
        }
    }
    tally
}

async fn read_part(
    plan: &PartReaders,
    target: &Target,
    number: u64,
    kept: &mut Option<Connection>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let part_bytes = plan.part_bytes.min(plan.object_bytes);
    // The same parts in the same order, whichever reader reads them.
    let mut rng = Rng::new(plan.seed ^ (number << 32));
    let start = rng.below(plan.object_bytes - part_bytes + 1);
    let begin = Instant::now();
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => {
            tally.connected();
            Connection::open(target.address, None, 0).await?
        }
    };
    let head = connection.ask_part(target, Some(&(start..start + part_bytes)), false).await?;
    let mut body = Body::part(&head, plan.pattern, start);
    let mut buffer = vec![0; READ_BYTES];
    let first = connection.read(&mut body, &mut buffer).await?;
    tally.answered(us(begin.elapsed()), head.node.clone());
    tally.received(first);
    let rest = Instant::now();
    while body.left() > 0 {
        tally.received(connection.read(&mut body, &mut buffer).await?);
        if let Some(due_us) = (body.received * 1_000_000).checked_div(plan.rate_bytes_s) {
            sleep_until((rest + Duration::from_micros(due_us)).into()).await;
        }
    }
    *kept = Some(connection).filter(|_| !head.closes);
    Ok(())
}
