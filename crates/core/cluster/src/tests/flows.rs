//! Replication of a flow table to a standby over a network that loses, duplicates and reorders.

use std::collections::BTreeSet;

use skep_units::{Now, Rng};
use skep_wire::message::{FlowBatch, FlowsTaken};
use skep_wire::steer::Flow;

use crate::flows::{FlowSink, FlowSource};

fn flow(n: u32) -> Flow {
    let [a, b, c, d] = n.to_be_bytes();
    Flow { client: ([10, a, b, c], u16::from(d) + 1).into(), service: 0, node: 0 }
}

fn flows(range: std::ops::Range<u32>) -> Vec<Flow> {
    range.map(flow).collect()
}

/// Returns the flows of the sink after all is transferred, with `loss_percent` of losses.
fn transfer(
    seed: u64,
    loss_percent: u64,
    source: &mut FlowSource,
    sink: &mut FlowSink,
) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let (mut there, mut back): (Vec<FlowBatch>, Vec<FlowsTaken>) = (Vec::new(), Vec::new());
    let mut got = Vec::new();
    for ms in (0..2_000_000u64).step_by(10) {
        for batch in source.due(Now(ms)) {
            if rng.below(100) >= loss_percent {
                let at = rng.below(there.len() as u64 + 1) as usize;
                there.insert(if rng.below(10) == 0 { at } else { there.len() }, batch.clone());
                if rng.below(20) == 0 {
                    there.push(batch);
                }
            }
        }
        for batch in there.drain(..) {
            let (flows, taken) = sink.take(batch);
            got.extend(flows);
            back.extend(taken.filter(|_| rng.below(100) >= loss_percent));
        }
        back.drain(..).for_each(|taken| source.taken(Now(ms), taken));
        if source.due(Now(ms)).is_empty() && source.is_idle() {
            return got;
        }
    }
    panic!("seed {seed}: not done after 2000 s");
}

#[test]
fn everything_arrives_once_and_in_order_whatever_the_network_does() {
    for seed in 0..60 {
        let (mut source, mut sink) = (FlowSource::new(Now(0), 7), FlowSink::default());
        source.list(&flows(0..1_000));
        source.begin(&flows(5_000..5_010));
        source.list(&flows(1_000..1_700));
        source.list(&[]);
        source.begin(&flows(6_000..6_100));
        let got = transfer(seed, seed % 40, &mut source, &mut sink);
        let expected: Vec<Flow> =
            [flows(0..1_700), flows(5_000..5_010), flows(6_000..6_100)].concat();
        assert_eq!(got, expected, "seed {seed}");
        assert!(sink.is_synced());
        source.begin(&flows(7_000..7_001));
        assert_eq!(transfer(seed, 10, &mut source, &mut sink), flows(7_000..7_001));
    }
}

#[test]
fn an_empty_table_is_synced_too_but_not_before_its_end() {
    let (mut source, mut sink) = (FlowSource::new(Now(0), 1), FlowSink::default());
    assert!(source.due(Now(0)).is_empty() && !sink.is_synced());
    source.list(&[]);
    let got = transfer(1, 0, &mut source, &mut sink);
    assert!(got.is_empty() && sink.is_synced());
}

#[test]
fn a_new_dump_begins_anew_and_batches_of_the_old_one_are_nothing() {
    let (mut old, mut sink) = (FlowSource::new(Now(0), 1), FlowSink::default());
    old.list(&flows(0..100));
    let late = old.due(Now(0));
    transfer(1, 0, &mut old, &mut sink);
    let mut new = FlowSource::new(Now(0), 2);
    new.list(&flows(50..60));
    new.list(&[]);
    let got: BTreeSet<_> =
        transfer(2, 20, &mut new, &mut sink).into_iter().map(|flow| flow.client).collect();
    assert_eq!(got.len(), 10);
    for batch in late.into_iter().filter(|batch| !batch.is_first) {
        assert_eq!(sink.take(batch), (Vec::new(), None));
    }
    assert!(sink.is_synced());
}

#[test]
fn a_standby_that_takes_nothing_makes_a_source_hopeless_not_endless() {
    let mut source = FlowSource::new(Now(0), 1);
    source.list(&[]);
    let many = flows(0..48 * 25_000);
    assert!(!source.is_hopeless());
    source.begin(&many);
    assert!(source.is_hopeless());
    assert_eq!(source.due(Now(0)).len(), 256);
    assert!(source.due(Now(100)).is_empty());
    assert_eq!(source.due(Now(300)).len(), 256);
}

#[test]
fn a_dump_that_is_never_listed_to_its_end_does_not_grow_for_ever() {
    let mut source = FlowSource::new(Now(0), 7);
    source.list(&flows(0..1_000));
    let begun = flows(0..10_000);
    let rounds = (0..10_000).take_while(|_| {
        source.begin(&begun);
        !source.is_hopeless()
    });
    assert!(rounds.count() < 1_000);
}
