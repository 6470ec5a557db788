//! The requests of each worker in progress at members, for operators.
//!
//! Each worker has its own table, which no other thread accesses: the worker reads it on request. A
//! request therefore takes no lock for it and, in steady state, allocates nothing.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use skep_serve::WorkerHandle;

use crate::limits::SHOWN_PATH_BYTES_MAX;
use crate::members::group::Group;
use crate::worker_balancer::PickedMember;

/// Length of the longest method that is shown completely, in bytes: `BASELINE-CONTROL` (RFC 3253).
const METHOD_BYTES_MAX: usize = 16;

thread_local! {
    static TABLE: RefCell<Table> = const { RefCell::new(Table { rows: Vec::new(), free: Vec::new() }) };
}

/// A request in progress at a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInFlight {
    /// Name of the group, and the terms for it and its members.
    pub group: String,
    pub group_word: &'static str,
    pub member: String,
    pub client: IpAddr,
    /// The beginning of the method and of the path, which is shown without query and parameters.
    pub method: String,
    pub path: String,
    /// Time since it was sent to the member, in milliseconds.
    pub age_ms: u64,
    /// Whether it was upgraded.
    pub is_tunnel: bool,
}

/// The rows, and the indexes of empty ones.
struct Table {
    rows: Vec<Option<Row>>,
    free: Vec<usize>,
}

struct Row {
    group: Arc<Group>,
    target: PickedMember,
    client: IpAddr,
    method: Cut<METHOD_BYTES_MAX>,
    path: Cut<SHOWN_PATH_BYTES_MAX>,
    began: Instant,
    is_tunnel: bool,
}

/// The beginning of a text, stored inline.
struct Cut<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// A request in the table; removed when dropped.
#[derive(Debug)]
pub(super) struct TableEntry(usize);

impl TableEntry {
    pub(super) fn new(
        (group, target): (&Arc<Group>, &PickedMember),
        client: IpAddr,
        (method, path): (&str, &[u8]),
        began: Instant,
    ) -> Self {
        // Parameters may contain a session id, as `;jsessionid=` does.
        let path = path.split(|byte| matches!(byte, b';' | b'?')).next().unwrap_or_default();
        let row = Row {
            group: Arc::clone(group),
            target: target.clone(),
            client,
            method: Cut::new(method.as_bytes()),
            path: Cut::new(path),
            began,
            is_tunnel: false,
        };
        TABLE.with_borrow_mut(|table| match table.free.pop() {
            Some(at) => {
                table.rows[at] = Some(row);
                Self(at)
            }
            None => {
                table.rows.push(Some(row));
                Self(table.rows.len() - 1)
            }
        })
    }

    pub(super) fn become_tunnel(&self) {
        TABLE.with_borrow_mut(|table| {
            if let Some(row) = table.rows.get_mut(self.0).and_then(Option::as_mut) {
                row.is_tunnel = true;
            }
        });
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        // The row is dropped after the borrow ends, since it may hold the last references to its
        // contents.
        let row = TABLE.try_with(|table| {
            let mut table = table.borrow_mut();
            let row = table.rows.get_mut(self.0).and_then(Option::take);
            table.free.push(self.0);
            row
        });
        drop(row);
    }
}

/// Lets `worker` send its requests in progress at members. False: the worker is gone.
pub fn tell_requests(worker: &WorkerHandle, tell: SyncSender<Vec<RequestInFlight>>) -> bool {
    worker.run(move |_| {
        let rows = TABLE.with_borrow(|table| table.rows.iter().flatten().map(Row::show).collect());
        // The receiver may be gone.
        let _ = tell.try_send(rows);
    })
}

impl Row {
    fn show(&self) -> RequestInFlight {
        RequestInFlight {
            group: self.group.name().to_owned(),
            group_word: self.group.words.group,
            member: self.target.name().to_string(),
            client: self.client,
            method: self.method.text(),
            path: self.path.text(),
            age_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            is_tunnel: self.is_tunnel,
        }
    }
}

impl<const N: usize> Cut<N> {
    fn new(text: &[u8]) -> Self {
        let len = text.len().min(N);
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.len]).into_owned()
    }
}
