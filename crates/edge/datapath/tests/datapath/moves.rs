//! Connections that a node hands off: allowed changes of state, a full map, and expiry.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use skep_datapath::limits::MOVES_MAX;
use skep_datapath::{DatapathError, ExpiredMoves, MoveState, Moves, NodeProgram, PinPath};
use skep_wire::handoff::SocketId;

use crate::common::{CLIENT, SIZES, VIP, in_bed};

const AGES: Duration = Duration::from_secs(3600);

fn place() -> PinPath {
    PinPath { pins: PathBuf::from("/sys/fs/bpf/skep/test/node") }
}

fn open() -> NodeProgram {
    NodeProgram::open(&place(), SIZES).unwrap()
}

/// The connection with this number.
fn id(number: u32) -> SocketId {
    let [a, b, ..] = CLIENT;
    let client = SocketAddr::from(([a, b, (number >> 16) as u8, 2], number as u16));
    SocketId { client, server: SocketAddr::from((VIP, 80)) }
}

fn id6() -> SocketId {
    let (client, server) = ("[2001:db8::1]:4000", "[2001:db8::80]:80");
    SocketId { client: client.parse().unwrap(), server: server.parse().unwrap() }
}

#[test]
fn only_what_is_blocked_is_redirected() {
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        let refused = |error: DatapathError| assert!(matches!(error, DatapathError::NotBlocked(_)));
        for id in [id(1), id6()] {
            assert_eq!(moves.state(id).unwrap(), None);
            refused(moves.redirect(id, 3).unwrap_err());
            moves.block(id).unwrap();
            moves.block(id).unwrap();
            assert_eq!(moves.state(id).unwrap(), Some(MoveState::Blocked));
            assert!(matches!(moves.redirect(id, 1024), Err(DatapathError::OutOfRange { .. })));
            moves.redirect(id, 3).unwrap();
            assert_eq!(moves.state(id).unwrap(), Some(MoveState::Redirected(3)));
            moves.redirect(id, 3).unwrap();
            refused(moves.redirect(id, 4).unwrap_err());
            moves.release(id).unwrap();
            moves.release(id).unwrap();
            assert_eq!(moves.state(id).unwrap(), None);
        }
        // Connections with other addresses are not affected.
        moves.block(id(1)).unwrap();
        let other = SocketId { server: SocketAddr::from((VIP, 81)), ..id(1) };
        assert_eq!((moves.state(id(2)).unwrap(), moves.state(other).unwrap()), (None, None));
    });
}

#[test]
fn what_comes_back_and_is_given_up_is_redirected_as_before() {
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        moves.block(id(1)).unwrap();
        moves.redirect(id(1), 3).unwrap();
        moves.block(id(1)).unwrap();
        moves.block(id(1)).unwrap();
        moves.forget(id(1)).unwrap();
        assert_eq!(moves.state(id(1)).unwrap(), Some(MoveState::Redirected(3)));
        // Once accepted, the connection is at this node.
        moves.block(id(1)).unwrap();
        moves.release(id(1)).unwrap();
        moves.block(id(1)).unwrap();
        moves.forget(id(1)).unwrap();
        assert_eq!(moves.state(id(1)).unwrap(), None);
        moves.block(id(1)).unwrap();
        moves.redirect(id(1), 3).unwrap();
        moves.forget(id(1)).unwrap();
        assert_eq!(moves.state(id(1)).unwrap(), Some(MoveState::Redirected(3)), "not blocked");
    });
}

#[test]
fn a_full_map_refuses_new_connections_and_goes_on_with_old_ones() {
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        for number in 0..MOVES_MAX as u32 {
            moves.block(id(number)).unwrap();
        }
        let full = moves.block(id6()).unwrap_err();
        assert!(matches!(full, DatapathError::TooManyMoves { limit: MOVES_MAX }), "{full}");
        assert!(full.to_string().contains("65536 connections"), "{full}");
        moves.block(id(7)).unwrap();
        moves.redirect(id(7), 3).unwrap();
        moves.block(id(7)).unwrap();
        moves.forget(id(7)).unwrap();
        moves.release(id(8)).unwrap();
        moves.block(id6()).unwrap();
        assert_eq!(moves.blocked().unwrap().len(), MOVES_MAX - 1);
    });
}

#[test]
fn the_next_netguard_finds_connections_as_they_were() {
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        moves.block(id(1)).unwrap();
        moves.block(id(2)).unwrap();
        moves.redirect(id(2), 3).unwrap();
        drop(moves);
        let program = open();
        assert_eq!(program.replaced(), [""; 0]);
        let moves = program.moves().unwrap();
        assert_eq!(moves.blocked().unwrap(), [id(1)]);
        assert_eq!(moves.state(id(2)).unwrap(), Some(MoveState::Redirected(3)));
        drop((program, moves));
        NodeProgram::detach(&place()).unwrap();
        assert!(matches!(open().moves().unwrap().state(id(2)), Ok(None)));
    });
}

#[test]
fn old_entries_go_each_by_its_own_age() {
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        let mut fill = || {
            moves.block(id(1)).unwrap();
            moves.block(id(2)).unwrap();
            moves.redirect(id(2), 3).unwrap();
        };
        fill();
        assert_eq!(moves.expire(AGES, AGES).unwrap(), ExpiredMoves::default());
        let expired = moves.expire(Duration::ZERO, AGES).unwrap();
        assert_eq!(expired, ExpiredMoves { blocked: 1, redirected: 0 });
        assert_eq!(moves.state(id(2)).unwrap(), Some(MoveState::Redirected(3)));
        let expired = moves.expire(AGES, Duration::ZERO).unwrap();
        assert_eq!(expired, ExpiredMoves { blocked: 0, redirected: 1 });
        assert_eq!(moves.state(id(2)).unwrap(), None);
    });
}

#[test]
fn where_redirects_fill_the_map_old_ones_go_of_the_part_that_is_looked_at() {
    const LOOKED: usize = 1_024;
    const PARTS: usize = MOVES_MAX / LOOKED;
    in_bed(|_| {
        let mut moves = open().moves().unwrap();
        for number in 0..MOVES_MAX as u32 {
            moves.block(id(number)).unwrap();
            if number > 0 {
                moves.redirect(id(number), 3).unwrap();
            }
        }
        let began = Instant::now();
        assert_eq!(moves.make_room(LOOKED, LOOKED, AGES).unwrap(), 0, "none is as old");
        println!("a look at {LOOKED} of {MOVES_MAX} entries: {:?}", began.elapsed());
        moves.block(id6()).unwrap_err();
        let mut removed = 0;
        for _ in 0..PARTS / 2 {
            removed += moves.make_room(LOOKED, LOOKED / 8, Duration::ZERO).unwrap();
        }
        assert!((MOVES_MAX / 17..=MOVES_MAX / 16).contains(&removed), "{removed}");
        moves.block(id6()).unwrap();
        let state = |moves: &Moves, number| moves.state(id(number)).unwrap();
        let is_there = |number: &u32| state(&moves, *number).is_some();
        let mut late = MOVES_MAX as u32 / 2..MOVES_MAX as u32;
        assert!(late.all(|number| is_there(&number)), "they were the last to be used");
        // Each call continues where the last one ended, so that no connection is left out.
        for _ in 0..2 * PARTS {
            removed += moves.make_room(LOOKED, LOOKED, Duration::ZERO).unwrap();
        }
        assert_eq!(removed, MOVES_MAX - 1);
        assert_eq!(state(&moves, 0), Some(MoveState::Blocked), "it is somebody's");
    });
}
