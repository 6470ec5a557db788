//! Single bodies, and hundreds at once within their bounds.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::poll_fn;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::BufferLimits;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn limits(folder: Option<&Path>) -> BufferLimits {
    BufferLimits {
        memory_bytes_max: 4 * MIB,
        folder: folder.map(Path::to_path_buf),
        spool_bytes_max: 64 * MIB,
        spool_body_bytes_max: 16 * MIB,
    }
}

fn run<T>(job: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(job)
}

/// `count` bytes of a sequence whose period differs from the size of a block.
fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(|at| (at % 251) as u8).collect()
}

/// Appends up to `count` bytes, as far as there is room; returns the number appended, and what ran short.
async fn fill(body: &mut BodyBuffer, from: usize, count: usize) -> (usize, Option<Shortage>) {
    let mut done = 0;
    while done < count {
        if let Err(shortage) = poll_fn(|cx| body.poll_room(cx)).await {
            return (done, Some(shortage));
        }
        let piece = (count - done).min(READ_BYTES as usize - 1);
        body.push(&bytes(from + done, piece));
        done += piece;
    }
    (done, None)
}

async fn take(body: &mut BodyBuffer, count: usize) -> io::Result<Vec<u8>> {
    let mut sink = Vec::new();
    while sink.len() < count {
        let left = count - sink.len();
        if poll_fn(|cx| body.poll_take(cx, &mut sink, left)).await? == 0 {
            break;
        }
    }
    Ok(sink)
}

/// Checks that the bodies have released everything, as soon as threads have closed their files.
async fn assert_all_given_back(of: &BodyBuffers) {
    assert_eq!(of.memory_bytes(), 0);
    while of.spool_bytes() > 0 {
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_come_out_in_their_order(
        steps in prop::collection::vec((0..600_000_usize, 0..600_000_usize), 1..12),
        spools in any::<bool>(),
        is_whole in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let of = BodyBuffers::new(limits(spools.then_some(folder.path())));
        run(async {
            let mut body = BodyBuffer::new(Arc::clone(&of), 256 * KIB, is_whole);
            let (mut put, mut taken) = (0, 0);
            for (more, less) in steps {
                put += fill(&mut body, put, more).await.0;
                let got = take(&mut body, less).await.unwrap();
                assert_eq!(got, bytes(taken, less.min(put - taken)));
                taken += got.len();
                assert_eq!(body.is_empty(), put == taken);
                assert!(of.memory_bytes() <= 256 * KIB + UNWRITTEN_BYTES_MAX + TRANSFER_BYTES);
            }
            assert_eq!(take(&mut body, usize::MAX).await.unwrap(), bytes(taken, put - taken));
            drop(body);
            assert_all_given_back(&of).await;
        });
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no file has a name");
    }
}

#[test]
fn without_a_folder_a_body_ends_at_its_part_of_the_memory() {
    let of = BodyBuffers::new(limits(None));
    run(async {
        let mut body = of.body(256 * KIB);
        let (put, short) = fill(&mut body, 0, MIB as usize).await;
        assert_eq!(short, Some(Shortage::Body));
        assert!((192 * KIB as usize..=256 * KIB as usize).contains(&put), "{put}");
        assert_eq!(take(&mut body, usize::MAX).await.unwrap(), bytes(0, put));
        assert_eq!(fill(&mut body, 0, 1).await, (1, None), "there is room again");
    });
    assert_eq!(of.shortages()[0], ("body", 1), "it counts once");
}

#[test]
fn clients_that_stand_still_stay_within_the_memory_and_leave_some_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for folder in [None, Some(folder.path())] {
        let of = BodyBuffers::new(BufferLimits { memory_bytes_max: 16 * MIB, ..limits(folder) });
        run(async {
            let mut bodies: Vec<_> = (0..300).map(|_| of.whole_body(256 * KIB)).collect();
            let mut whole = 0;
            for body in &mut bodies {
                let (_, short) = fill(body, 0, 150 * KIB as usize).await;
                whole += usize::from(short.is_none());
                // As a reader that waits for more does.
                while body.disk.transfer.is_some() {
                    poll_fn(|cx| body.poll_transfer(cx)).await;
                    let _ = poll_fn(|cx| Poll::Ready(body.poll_room(cx))).await;
                }
                assert!(of.memory_bytes() <= 16 * MIB, "{}", of.memory_bytes());
            }
            // 300 bodies of 10 blocks are three times the memory.
            assert_eq!(
                whole == 300,
                folder.is_some(),
                "{whole} of 300 bodies: {:?}",
                of.shortages()
            );
            if let Some(mut last) = bodies.pop().filter(|_| folder.is_some()) {
                assert!(take(&mut last, usize::MAX).await.unwrap() == bytes(0, 150 * KIB as usize));
            }
            bodies.clear();
            while of.memory_bytes() > 0 || of.spool_bytes() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn clients_that_stop_after_a_while_leave_memory_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let of = BodyBuffers::new(BufferLimits {
        memory_bytes_max: 16 * MIB,
        spool_bytes_max: 1024 * MIB,
        ..limits(Some(folder.path()))
    });
    let count = 600 * KIB as usize;
    run(async {
        let mut bodies: Vec<_> = (0..300).map(|_| of.body(256 * KIB)).collect();
        for body in &mut bodies {
            assert_eq!(fill(body, 0, count).await, (count, None), "{:?}", of.shortages());
            // Up to the first bytes that are read back from the file.
            while body.disk.read_at == 0 {
                take(body, 4 * KIB as usize).await.unwrap();
            }
            poll_fn(|cx| {
                body.settle(cx);
                if body.disk.transfer.is_some() { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
        let mut next = of.body(256 * KIB);
        assert_eq!(fill(&mut next, 0, count).await, (count, None), "{:?}", of.shortages());
        assert!(take(&mut next, count).await.unwrap() == bytes(0, count));
    });
}

#[test]
fn the_spool_has_bounds_for_one_body_and_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let of = BodyBuffers::new(limits(Some(folder.path())));
    run(async {
        let mut bodies: Vec<_> = (0..6).map(|_| of.body(256 * KIB)).collect();
        let mut shortages = Vec::new();
        for body in &mut bodies {
            let (put, short) = fill(body, 0, 20 * MIB as usize).await;
            assert!(put as u64 <= 16 * MIB + 512 * KIB, "{put}");
            assert!(of.spool_bytes() <= 64 * MIB);
            shortages.push((short, put));
        }
        assert_eq!(shortages[0].0, Some(Shortage::Body), "{shortages:?}");
        assert_eq!(shortages[5].0, Some(Shortage::Spool), "{shortages:?}");
        for (body, (_, put)) in bodies.iter_mut().zip(shortages) {
            assert!(take(body, usize::MAX).await.unwrap() == bytes(0, put));
        }
        bodies.clear();
        assert_all_given_back(&of).await;
    });
}

#[test]
fn a_disk_that_takes_nothing_costs_no_byte() {
    let of = BodyBuffers::new(limits(Some("/nowhere/at/all".as_ref())));
    assert!(of.check_folder().is_err());
    run(async {
        let mut body = of.body(256 * KIB);
        let (put, short) = fill(&mut body, 0, MIB as usize).await;
        assert_eq!(short, Some(Shortage::Disk));
        assert_eq!(take(&mut body, usize::MAX).await.unwrap(), bytes(0, put));
        drop(body);
        assert_all_given_back(&of).await;
    });
    assert_eq!(of.shortages()[3], ("disk", 1));
}

#[test]
fn a_body_that_is_dropped_while_the_disk_works_gives_all_back() {
    let folder = tempfile::tempdir().unwrap();
    let of = BodyBuffers::new(limits(Some(folder.path())));
    run(async {
        for after in 0..8 {
            let mut body = of.body(64 * KIB);
            fill(&mut body, 0, (after * 100 + 400) * KIB as usize).await;
            // Starts a read, or waits for a write.
            let mut sink = Vec::new();
            for _ in 0..after * 20 {
                let taken = poll_fn(|cx| {
                    let taken = body.poll_take(cx, &mut sink, 5000);
                    Poll::Ready(taken.is_ready())
                });
                if !taken.await {
                    break;
                }
            }
        }
        while of.memory_bytes() > 0 || of.spool_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn who_waits_for_room_is_woken_when_others_give_it_back() {
    let folder = tempfile::tempdir().unwrap();
    for folder in [None, Some(folder.path())] {
        let of = BodyBuffers::new(limits(folder));
        // All of the memory is in use.
        let all = of.reserve_memory(4 * MIB);
        run(async {
            let mut body = of.body(256 * KIB);
            let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let waker = std::task::Waker::from(Arc::new(Counting(Arc::clone(&looks))));
            let mut cx = Context::from_waker(&waker);
            assert_eq!(body.poll_room(&mut cx), Poll::Ready(Err(Shortage::Memory)));
            assert_eq!(looks.load(std::sync::atomic::Ordering::SeqCst), 0);
            drop(all);
            assert_eq!(looks.load(std::sync::atomic::Ordering::SeqCst), 1);
            assert_eq!(body.poll_room(&mut cx), Poll::Ready(Ok(())));
        });
    }
}

struct Counting(Arc<std::sync::atomic::AtomicUsize>);

impl std::task::Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}
