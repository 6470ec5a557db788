//! What a group publishes for the workers: immutable, swapped as a whole.
//!
//! Changes when the set of members, a weight, an address for clients or a setting does. Health and
//! drains are not part of it: they are a number in each [`SharedMember`], which workers read at
//! every pick.

use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_policy::ServedLog;

use crate::members::comparison::Comparison;
use crate::members::member::SharedMember;
use crate::members::settings::GroupSettings;

/// One state of a group, as workers see it.
#[derive(Debug)]
pub(crate) struct Published {
    /// Changes if and only if the set of members, their order or a weight does.
    pub(crate) members_version: u64,
    pub(crate) settings: Arc<GroupSettings>,
    pub(crate) members: Vec<Entry>,
    /// The A/B test that goes on.
    pub(crate) comparison: Option<Arc<Comparison>>,
    /// Objects that members have answered for, if their responses are not seen here.
    pub(crate) served: Option<Arc<ArcSwap<ServedLog>>>,
}

/// A member and its values that only change with a new [`Published`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) member: Arc<SharedMember>,
    pub(crate) weight: u32,
    /// The clients' address of it.
    pub(crate) authority: Box<str>,
    /// `X-Skep-Node: NAME\r\n`, or nothing if that is disabled.
    pub(crate) name_line: Box<[u8]>,
    /// By what name requests of its sessions know it.
    pub(crate) session_name: Box<str>,
    /// `Set-Cookie: …\r\n` for a client whose session begins there, or nothing: of one that has asked by http,
    /// and by https.
    pub(crate) session_lines: [Box<[u8]>; 2],
}

impl Entry {
    /// `authority` is the clients' address of the member; it was checked.
    pub(crate) fn new(
        member: Arc<SharedMember>,
        weight: u32,
        authority: &str,
        settings: &GroupSettings,
    ) -> Self {
        let name_line = match settings.names_member {
            true => format!("X-Skep-Node: {}\r\n", member.name),
            false => String::new(),
        };
        let sticky = settings.sticky.as_ref();
        let session_name =
            sticky.map(|sticky| sticky.session_name(&member.name)).unwrap_or_default();
        let session_lines = [false, true].map(|is_secure| {
            let line = sticky.map(|sticky| sticky.cookie_line(&session_name, is_secure));
            line.unwrap_or_default().into_bytes().into()
        });
        Self {
            member,
            weight,
            authority: authority.into(),
            name_line: name_line.into_bytes().into(),
            session_name: session_name.into(),
            session_lines,
        }
    }
}
