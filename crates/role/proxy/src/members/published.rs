//! The state that a group publishes for the workers: immutable, replaced as a whole.
//!
//! It changes with the set of members, a weight, an address for clients or a setting. Health and drains are
//! not part of it: they are a number in each [`SharedMember`], which workers read at every selection.

use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_policy::ServedLog;

use crate::members::comparison::Comparison;
use crate::members::member::SharedMember;
use crate::members::settings::GroupSettings;

/// One state of a group, as read by workers.
#[derive(Debug)]
pub(crate) struct Published {
    /// Changes if and only if the set of members, their order or a weight does.
    pub(crate) members_version: u64,
    pub(crate) settings: Arc<GroupSettings>,
    pub(crate) members: Vec<Entry>,
    /// The current A/B test.
    pub(crate) comparison: Option<Arc<Comparison>>,
    /// Objects that members have served, if this process sees no responses.
    pub(crate) served: Option<Arc<ArcSwap<ServedLog>>>,
}

/// A member and its values that only change with a new [`Published`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) member: Arc<SharedMember>,
    pub(crate) weight: u32,
    /// Its address for clients.
    pub(crate) authority: Box<str>,
    /// `X-Skep-Node: NAME\r
    /// `, or empty if that is disabled.
    pub(crate) name_line: Box<[u8]>,
    /// The name that identifies it in requests of its sessions.
    pub(crate) session_name: Box<str>,
    /// `Set-Cookie: …\r
    /// ` for a client whose session begins there, or empty: for clients that use http, and for those that use
    /// https.
    pub(crate) session_lines: [Box<[u8]>; 2],
}

impl Entry {
    /// `authority` is the member's address for clients, already validated.
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
